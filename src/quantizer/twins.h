// Each quantized node beside its exact self: twins read the exact operands, so that they differ by their own rounding.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "quantizer/calibrate.h"
#include "quantizer/select.h"

namespace ingot {

struct Twins {
  Graph graph;
  std::vector<size_t> nodes;                // which of the selected nodes have a twin: the products
  std::vector<std::string> exact, rounded;  // results, in the order of `nodes`
};

Twins make_twins(const Graph& exact, const Selection&, const QuantizationFacts&);

// Calls visit(i, exact, rounded) for every pair of results in up to `limit` samples.
void each_pair(const Twins&, const Samples&, size_t limit, const ProgressFn&, const std::string& what,
               const std::function<void(size_t, const Constant&, const Constant&)>& visit);

}  // namespace ingot
