// What `ingot inspect` counts, shared by its text, JSON and HTML forms.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/compiler.h"

namespace ingot {

using Counts = std::vector<std::pair<std::string, int64_t>>;  // most frequent first

Counts count(const std::vector<std::string>& names);
Counts operators(const Graph&);
Counts matched_fusions(const FusionReport&);
// The forms in which a target's kernels take the second operand of matrix products and convolutions.
Counts products(const Graph&, const Target&);
// Multiply-adds of one run with inputs of these dims, in matrix products, convolutions and attention.
struct MultiplyAdds {
  double floats = 0, bytes = 0;
};
// Nothing where shapes depend on data.
std::optional<MultiplyAdds> multiply_adds(const Graph&, const std::vector<std::vector<int64_t>>& input_dims);
// Bytes of all constants; those that share memory count once.
int64_t weight_bytes(const Graph&);

}  // namespace ingot
