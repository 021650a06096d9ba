// Packs a constant matrix of 8-bit integers for the kernels ingot_gemm_i8_*. Each packed format is drawn where it is
// made: pack_i8_chained.h for the form chained, pack_i8.cpp for the others.
#pragma once
#include <cstdint>
#include <optional>
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
  // As the kernels that multiply bytes have it: u8 less 128.
  int8_t weight_of(uint8_t byte) const { return static_cast<int8_t>(is_signed ? byte : byte ^ 0x80); }
  int8_t weight_at(int64_t k, int64_t column) const { return weight_of(at(k, column)); }

  // Each run is cut into words (kernels/gemm_i8_words.h), of which the last may be filled up: k_of is the number of K
  // in `part` of a word, or nothing past the end of its run.
  int64_t words(kernel::I8Form) const;
  std::optional<int64_t> k_of(kernel::I8Form, int64_t word, int64_t part) const;
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
