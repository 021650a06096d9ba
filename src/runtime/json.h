// JSON text that the runtime writes itself: quoted strings and a model's signature.
#pragma once
#include <string>

#include "graph/graph.h"

namespace ingot {

std::string json_string(const std::string&);
// {"inputs": [{"name", "dtype", "shape"}], "outputs": [...]}
std::string signature_json(const Graph&);

}  // namespace ingot
