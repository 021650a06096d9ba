// Packs a constant matrix of 8-bit integers for the kernels ingot_gemm_i8_* (kernels/gemm_i8.h says how it is laid
// out).
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/gemm_i8.h"

namespace ingot {

// B as the packer sees it: K numbers, in `runs` runs of `run_bytes`, for each of n columns.
struct I8Matrix {
  int64_t n = 0, runs = 1, run_bytes = 0;
  bool is_signed = true;
  const uint8_t* data = nullptr;  // as it is stored: number k of a column at data[column * column_stride + k_offset[k]]
  std::vector<int64_t> k_offset;
  int64_t column_stride = 0;

  uint8_t at(int64_t k, int64_t column) const {
    return data[column * column_stride + k_offset[static_cast<size_t>(k)]];
  }
};
// B[k][n] with strides in bytes.
I8Matrix i8_matrix(const uint8_t* data, int64_t k, int64_t n, int64_t row_stride, int64_t column_stride,
                   bool is_signed);

struct PackedI8 {
  kernel::I8Form form = kernel::kI8Pairs;
  std::vector<std::byte> bytes;
};

// For vectors of `lanes` floats: chained where that is faster, and in the form asked for where one is.
PackedI8 pack_i8(const I8Matrix&, int64_t lanes);
PackedI8 pack_i8(const I8Matrix&, kernel::I8Form, int64_t lanes);

}  // namespace ingot
