#include "cli/npy.h"

#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "targets.h"

namespace ingot {
namespace {

void same(const Array& a, const Array& b) {
  if (a.dtype == b.dtype && a.dims == b.dims && a.data == b.data) return;
  fprintf(stderr, "ERROR: an array is not what was written\n");
  abort();
}

}  // namespace

void fuzz::npy(Bytes bytes) {
  const auto file = std::as_bytes(bytes);
  try {
    const Array array = parse_npy(file, "a.npy");
    same(array, parse_npy(format_npy(array), "written.npy"));
  } catch (const Error& e) {
    if (e.message().starts_with("written")) abort();
  }
  try {
    const NamedArrays arrays = parse_npz(file, "a.npz");
    const NamedArrays again = parse_npz(format_npz(arrays), "written.npz");
    if (arrays.size() != again.size()) abort();
    for (size_t i = 0; i < arrays.size(); i++) same(arrays[i].second, again[i].second);
  } catch (const Error& e) {
    if (e.message().starts_with("written")) abort();
  }
}

}  // namespace ingot
