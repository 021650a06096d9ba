// Tensors taken apart and put together by host operators, by bytes and so for every element type of whole bytes.
#pragma once
#include "graph/value.h"

namespace ingot {

// The slice of `count` from `first` along an axis.
ConstantPtr slice(const Constant&, int64_t axis, int64_t first, int64_t count);
// The element at `index` along an axis, without the axis; its bytes are shared where they lie together.
ConstantPtr element(const ConstantPtr&, int64_t axis, int64_t index);
// Tensors joined along an axis; their other dims and types must agree.
ConstantPtr join(const std::vector<ConstantPtr>&, int64_t axis);
// Tensors of one shape joined along a new axis.
ConstantPtr stack(const std::vector<ConstantPtr>&, int64_t axis);

// Tensors that are made again and again: the memory of one serves again once nobody else holds it.
class Recycled {
 public:
  ConstantPtr make(DType, const std::vector<int64_t>& dims, std::byte** data);

 private:
  std::vector<ConstantPtr> made_;
};

// Equal tensors joined along a new axis, each copied as soon as it is there. Without `turns`, which tells how many come
// at most, only along the first axis and forward.
class Stacked {
 public:
  Stacked(int64_t axis, bool reverse, int64_t turns) : axis_(axis), reverse_(reverse), turns_(turns) {}
  void add(const Constant&);
  // Of no tensors: one of `expected`'s type and of its dims, or 0 where they are not known.
  ConstantPtr result(const TensorInfo& expected) const;

 private:
  void make_room();

  int64_t axis_;
  bool reverse_;
  int64_t turns_, count_ = 0, capacity_ = 0, outer_ = 1, step_ = 0;
  ConstantPtr joined_;
  std::byte* data_ = nullptr;
  DType dtype_ = DType::Undefined;
  std::vector<int64_t> dims_;  // of one
};

}  // namespace ingot
