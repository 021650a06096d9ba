// How fast one core reads memory, measured: what products with few rows are shares of.
#pragma once

namespace ingot {

// Best rate seen in `seconds` of summing an array much larger than the caches, in 1e9 bytes per second.
double read_bandwidth(double seconds);

}  // namespace ingot
