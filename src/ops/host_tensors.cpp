#include "ops/host_tensors.h"

#include <cstring>

#include "base/checked.h"
#include "base/error.h"
#include "ops/host.h"

namespace ingot {
namespace {

// Rows before an axis, and the bytes of one step along it.
struct Around {
  int64_t outer = 1, step = 1;
  Around(const Constant& c, int64_t axis) {
    step = element_bytes(c);
    for (int64_t d = 0; d < static_cast<int64_t>(c.dims.size()); d++) {
      const int64_t size = c.dims[static_cast<size_t>(d)];
      if (d < axis) outer *= size;
      if (d > axis) step *= size;
    }
  }
};

}  // namespace

ConstantPtr slice(const Constant& c, int64_t axis, int64_t first, int64_t count) {
  std::vector<int64_t> dims = c.dims;
  const int64_t size = dims[static_cast<size_t>(axis)];
  if (first < 0 || count < 0 || first + count > size)
    invalid_input("elements {} to {} of a dim of {} were asked for", first, first + count, size);
  dims[static_cast<size_t>(axis)] = count;
  const Around a(c, axis);
  std::byte* to = nullptr;
  ConstantPtr out = make_constant(c.dtype, dims, &to);
  for (int64_t i = 0; i < a.outer && count * a.step > 0; i++)
    std::memcpy(to + i * count * a.step, c.bytes.data() + (i * size + first) * a.step,
                static_cast<size_t>(count * a.step));
  return out;
}

ConstantPtr element(const Constant& c, int64_t axis, int64_t index) {
  ConstantPtr one = slice(c, axis, index, 1);
  std::vector<int64_t> dims = one->dims;
  dims.erase(dims.begin() + axis);
  return with_dims(one, std::move(dims));
}

ConstantPtr join(const std::vector<ConstantPtr>& parts, int64_t axis) {
  if (parts.empty()) invalid_input("there is nothing to join");
  const auto at = static_cast<size_t>(axis);
  std::vector<int64_t> dims = parts[0]->dims;
  dims[at] = 0;
  for (const ConstantPtr& p : parts) {
    std::vector<int64_t> other = p->dims;
    if (other.size() != dims.size() || p->dtype != parts[0]->dtype) invalid_input("tensors of different rank or type");
    dims[at] = checked_add(dims[at], other[at]);
    other[at] = dims[at];
    if (other != dims)
      invalid_input("shapes {} and {} differ besides axis {}", str(to_shape(p->dims)), str(to_shape(parts[0]->dims)),
                    axis);
  }
  std::byte* to = nullptr;
  ConstantPtr out = make_constant(parts[0]->dtype, dims, &to);
  const Around a(*out, axis);
  int64_t done = 0;
  for (const ConstantPtr& p : parts) {
    const int64_t bytes = p->dims[at] * a.step;
    for (int64_t i = 0; i < a.outer && bytes > 0; i++)
      std::memcpy(to + (i * dims[at]) * a.step + done, p->bytes.data() + i * bytes, static_cast<size_t>(bytes));
    done += bytes;
  }
  return out;
}

ConstantPtr stack(const std::vector<ConstantPtr>& parts, int64_t axis) {
  std::vector<ConstantPtr> wide;
  for (const ConstantPtr& p : parts) {
    std::vector<int64_t> dims = p->dims;
    if (axis > static_cast<int64_t>(dims.size()))
      invalid_input("a tensor of rank {} has no place for axis {}", dims.size(), axis);
    dims.insert(dims.begin() + axis, 1);
    wide.push_back(with_dims(p, std::move(dims)));
  }
  return join(wide, axis);
}

}  // namespace ingot
