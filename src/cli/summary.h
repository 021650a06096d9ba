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
// The forms that products of integers (kernels/gemm_i8.h) and of bf16 by bf16 (kernels/gemm_bf16.h) take.
struct ProductForms {
  Counts integers, bf16;
};
ProductForms product_forms(const Graph&, const CompileOptions&);
// Multiply-adds of one run with inputs of these dims, in matrix products, convolutions and attention.
struct MultiplyAdds {
  double floats = 0, bytes = 0;
};
// Nothing where shapes depend on data.
std::optional<MultiplyAdds> multiply_adds(const Graph&, const std::vector<std::vector<int64_t>>& input_dims);
// Bytes of all constants; those that share memory count once.
int64_t weight_bytes(const Graph&);

}  // namespace ingot
