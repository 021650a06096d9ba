#include "ops/host_tensors.h"

#include <algorithm>
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

ConstantPtr element(const ConstantPtr& c, int64_t axis, int64_t index) {
  const Around a(*c, axis);
  if (a.outer != 1 || index < 0 || index >= c->dims[static_cast<size_t>(axis)]) {
    ConstantPtr one = slice(*c, axis, index, 1);
    std::vector<int64_t> dims = one->dims;
    dims.erase(dims.begin() + axis);
    return with_dims(one, std::move(dims));
  }
  auto out = std::make_shared<Constant>();
  out->dtype = c->dtype;
  out->dims = c->dims;
  out->dims.erase(out->dims.begin() + axis);
  out->bytes = c->bytes.subspan(static_cast<size_t>(index * a.step), static_cast<size_t>(a.step));
  out->owner = c;
  return out;
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

ConstantPtr Recycled::make(DType dtype, const std::vector<int64_t>& dims, std::byte** data) {
  constexpr size_t kMost = 4;  // the last state of a loop, the next one, and what somebody still holds
  for (const ConstantPtr& c : made_)
    if (c.use_count() == 1 && c->dtype == dtype && c->dims == dims) {
      *data = const_cast<std::byte*>(c->bytes.data());
      return c;
    }
  if (made_.size() == kMost) made_.erase(made_.begin());
  made_.push_back(make_constant(dtype, dims, data));
  return made_.back();
}

void Stacked::make_room() {
  if (count_ < capacity_) return;
  constexpr int64_t kFirstBytes = 1 << 16;
  const int64_t bytes = outer_ * step_, before = capacity_;
  capacity_ = before > 0 ? checked_mul(before, 2) : std::max<int64_t>(1, kFirstBytes / std::max<int64_t>(1, bytes));
  if (outer_ != 1 || reverse_ || capacity_ > turns_) capacity_ = turns_;
  std::byte* data = nullptr;
  ConstantPtr joined = make_constant(DType::U8, {checked_mul(capacity_, bytes)}, &data);
  if (before * bytes > 0) std::memcpy(data, data_, static_cast<size_t>(before * bytes));
  joined_ = std::move(joined);
  data_ = data;
}

void Stacked::add(const Constant& c) {
  if (count_ == 0) {
    dims_ = c.dims;
    dtype_ = c.dtype;
    const auto rank = static_cast<int64_t>(dims_.size());
    if (axis_ < 0) axis_ += rank + 1;
    if (axis_ < 0 || axis_ > rank) invalid_input("a tensor of rank {} has no place for axis {}", rank, axis_);
    const Around a(c, axis_ - 1);
    outer_ = axis_ == 0 ? 1 : a.outer * c.dims[static_cast<size_t>(axis_ - 1)];
    step_ = a.step;
  }
  if (c.dims != dims_ || c.dtype != dtype_)
    invalid_input("shapes {} and {} differ, and are to be joined", str(to_shape(dims_)), str(to_shape(c.dims)));
  make_room();
  const int64_t at = reverse_ ? turns_ - 1 - count_ : count_;
  for (int64_t o = 0; o < outer_ && step_ > 0; o++)
    std::memcpy(data_ + (o * capacity_ + at) * step_, c.bytes.data() + o * step_, static_cast<size_t>(step_));
  count_++;
}

ConstantPtr Stacked::result(const TensorInfo& expected) const {
  auto out = std::make_shared<Constant>();
  out->dtype = count_ ? dtype_ : expected.dtype;
  out->dims = dims_;
  int64_t axis = axis_;
  if (count_ == 0) {
    for (const Dim& d : expected.shape.value_or(Shape{})) out->dims.push_back(d.is_const() ? d.value() : 0);
    const auto rank = static_cast<int64_t>(out->dims.size());
    if (axis < 0) axis += rank + 1;
    axis = std::clamp<int64_t>(axis, 0, rank);
  }
  out->dims.insert(out->dims.begin() + axis, count_);
  if (count_ > 0) out->bytes = {data_, static_cast<size_t>(count_ * outer_ * step_)};
  out->owner = joined_;
  return out;
}

}  // namespace ingot
