// A Graph in ONNX's vocabulary -> an ONNX file: the counterpart of loader/onnx_loader.
//
// The graph may be as load_onnx gives it, or after passes that keep to standard operators. Captured values become
// references to the outer graph again; constants that subgraphs share are stored once.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "graph/graph.h"

namespace ingot {

struct OnnxWriteOptions {
  // Versions the source named, by domain.
  std::map<std::string, int64_t> opsets;
  // Weights in a file beside the model (<model>.data). Always so above kMaxInlineBytes: protobuf ends at 2 GB.
  bool external_data = false;
  // The version of ai.onnx to write (writer/downgrade.h). Absent: that of the source, at least kOldestCurrentOpset.
  std::optional<int64_t> opset;
};

// The oldest opset in which everything the extractors make is written the way they make it.
inline constexpr int64_t kOldestCurrentOpset = 21;
inline constexpr int64_t kMaxInlineBytes = 1'900'000'000;

// InvalidInput for an opset that write_onnx does not write.
void check_opset(int64_t);

// Written beside and renamed. Unsupported, naming the node, for operators that ONNX does not have.
void write_onnx(const Graph&, const std::string& path, const OnnxWriteOptions&);

}  // namespace ingot
