// The speed limit of fp32 on this core, measured: what benchmark figures are shares of.
#pragma once

namespace ingot {

// Best rate seen in `seconds` of independent fused multiply-adds, in 1e9 per second; 0 without AVX2 and FMA.
double fma_peak(double seconds);

}  // namespace ingot
