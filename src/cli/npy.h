// numpy's .npy and .npz files, read and written. Malformed files are refused with the place and the reason.
// An .npz is a zip of .npy files: stored or deflated ones are read, stored ones are written.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "runtime/session.h"

namespace ingot {

struct Array {
  DType dtype = DType::Undefined;
  std::vector<int64_t> dims;
  std::vector<std::byte> data;  // row-major, little endian

  TensorView view() { return {dtype, dims, data.data()}; }
};
using NamedArrays = std::vector<std::pair<std::string, Array>>;

// `place` names the file in errors.
Array parse_npy(std::span<const std::byte> file, const std::string& place);
std::vector<std::byte> format_npy(const Array&);
NamedArrays parse_npz(std::span<const std::byte> file, const std::string& place);
std::vector<std::byte> format_npz(const NamedArrays&);

// Reads a whole file; writes one beside and renames it, so that a failure leaves nothing behind.
std::vector<std::byte> read_file(const std::string& path);
void write_file(const std::string& path, std::span<const std::byte> content);

}  // namespace ingot
