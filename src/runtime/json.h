// JSON text that the runtime writes itself: quoted strings and a model's signature.
#pragma once
#include <string>
#include <vector>

#include "graph/graph.h"

namespace ingot {

std::string json_string(const std::string&);
// [{"name", "dtype", "shape"}]
std::string ports_json(const Graph&, const std::vector<TensorId>&);
// {"inputs": [{"name", "dtype", "shape"}], "outputs": [...]}
std::string signature_json(const Graph&);

}  // namespace ingot
