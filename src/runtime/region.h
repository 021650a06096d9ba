// A graph, or a part of one, that is planned as a whole: tensors of numbers in and out, no host operators. It resolves
// shapes, lifetimes and kernels once per distinct set of input shapes, keeps the resolved plans in an LRU, and then
// only calls functions.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/profile.h"
#include "runtime/session.h"

namespace ingot {

struct RegionOptions {
  std::shared_ptr<KernelSource> kernels;  // may be null: all native
  int threads = 1;
  size_t plans = 16;  // kept
  std::shared_ptr<Profile> profile;
};

class Region {
 public:
  Region(std::shared_ptr<const Graph> graph, const RegionOptions&);
  ~Region();
  void run(const std::vector<TensorView>& inputs, const OutputAllocator& allocate);
  void prepare();  // plans, if all input shapes are known
  int64_t arena_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Size and input by which each symbol was first bound.
using BoundSymbols = std::map<std::string, std::pair<int64_t, std::string>>;
// InvalidInput when what was given does not fit what the graph says of its input.
void check_input(const Tensor& want, const TensorView& got, BoundSymbols& symbols);
void check_inputs(const Graph&, const std::vector<TensorView>& inputs);

}  // namespace ingot
