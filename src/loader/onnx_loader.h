// Reads an ONNX model: any IR version, default opsets 1 to 28, external data, functions, subgraphs.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "base/limits.h"
#include "graph/graph.h"

namespace ingot {

inline constexpr int64_t kNewestOpset = 28;

// The graph in terms of the current operator set (extracted), verified, not yet inferred. Large weights point into the
// file as it was read. A malformed file is an InvalidModel error that names the file, the node and the reason.
// `opsets`, if given, receives the versions of the operator sets that the file names, by domain.
// A model of more nodes than the limit is refused before they are made.
std::shared_ptr<Graph> load_onnx(const std::string& path, std::map<std::string, int64_t>* opsets = nullptr,
                                 const Limits& limits = {});

}  // namespace ingot
