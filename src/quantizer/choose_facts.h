// Facts from statistics: scales of activations, of weights, and what joins them.
#pragma once
#include "quantizer/quantizer.h"

namespace ingot {

// The activations that need a scale, by name.
std::vector<std::string> activations(const Graph&, const Selection&);
// `seen` holds statistics of all activations, unless scales are measured at run time.
QuantizationFacts choose_facts(const Graph&, const Selection&, const Statistics& seen, const QuantizeOptions&);

}  // namespace ingot
