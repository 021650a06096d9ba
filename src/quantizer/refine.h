// Changes of the fp32 model that make its quantized form more exact.
#pragma once
#include "quantizer/calibrate.h"
#include "quantizer/select.h"

namespace ingot {

// SmoothQuant: x W = (x / s) (s W) with s_j = max|x_j|^alpha / max|W_j|^(1 - alpha) for each input channel j, so that
// outliers of the activation are shared with the weight. 1/s goes into the LayerNormalization that makes x where
// nothing else reads x, otherwise into a Mul in front of the MatMul and Gemm nodes that do.
//
// Without alpha, each activation takes the one that promises least noise, and stays as it is unless that is much less.
// Without samples, what is known of x is what the LayerNormalization that makes it says: scale and bias. Returns how
// many activations were smoothed.
int64_t smooth(Graph&, const Selection&, std::optional<double> alpha, bool per_channel, const Samples&,
               const ProgressFn&);

// Subtracts from the bias of each product what rounding adds to its result on average, per output channel. A product
// without a bias gets one where the operator has room for it. Returns how many biases were changed.
int64_t correct_bias(Graph&, const Selection&, const QuantizationFacts&, const Samples&, const ProgressFn&);

}  // namespace ingot
