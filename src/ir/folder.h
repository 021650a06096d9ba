// An Engine IR folder: graph.yaml and weights.bin (emitter/ir_folder.h writes it).
#pragma once
#include <memory>
#include <string>

#include "graph/graph.h"

namespace ingot {

// The weights stay where the file was read to.
std::shared_ptr<Graph> load_ir(const std::string& folder);

}  // namespace ingot
