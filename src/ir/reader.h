// Reads the Engine IR: the yaml of a graph and the bytes of its weights. The format is described in
// emitter/ir_writer.h. Part of the runtime: a model.so carries both and reads them when it is opened.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "graph/graph.h"

namespace ingot {

struct IrReadOptions {
  std::string name = "graph.yaml";  // for messages
  bool verify_checksums = true;     // off for weights inside a library, which is trusted as a whole
};

// The constants point into `weights`, which must be 64-byte aligned and is kept by `owner`. What is wrong is an
// InvalidModel error with the line. The graph is verified.
std::shared_ptr<Graph> read_graph(std::string_view yaml, std::span<const std::byte> weights,
                                  std::shared_ptr<const void> owner, const IrReadOptions& options = {});

}  // namespace ingot
