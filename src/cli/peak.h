// The speed limits of one core, measured: what benchmark figures are shares of.
#pragma once
#include <string>

#include "base/target.h"

namespace ingot {

// The widest unit of a target for a kind of product, in words: "512-bit FMA".
std::string fp32_unit(const Target&);
std::string byte_unit(const Target&);

// Best rate of that unit seen in `seconds` of independent products, in 1e9 multiply-adds per second; 0 where the target
// does not run.
double fp32_peak(const Target&, double seconds);
double byte_peak(const Target&, double seconds);

}  // namespace ingot
