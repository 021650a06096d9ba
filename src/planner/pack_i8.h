// Packs a constant matrix of 8-bit integers for ingot_gemm_i8 (kernels/gemm_i8.h says how it is laid out).
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/gemm_i8.h"

namespace ingot {

// B as the packer sees it: K numbers, in `runs` runs of `run_bytes`, for each of n columns.
struct I8Matrix {
  int64_t n = 0, runs = 1, run_bytes = 0;
  bool is_signed = true;
  std::function<uint8_t(int64_t k, int64_t column)> at;  // the byte as it is stored
};

struct PackedI8 {
  kernel::I8Form form = kernel::kI8Pairs;
  std::vector<std::byte> bytes;
};

// Chained where that is faster, and in the form asked for where one is.
PackedI8 pack_i8(const I8Matrix&);
PackedI8 pack_i8(const I8Matrix&, kernel::I8Form);

}  // namespace ingot
