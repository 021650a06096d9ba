// A graph, or a part of one, that is planned as a whole: tensors of numbers in and out, no host operators. It resolves
// shapes, lifetimes and kernels once per distinct set of input shapes, keeps the resolved plans in an LRU, and then
// only calls functions. What a new set of shapes leaves as it was is taken from the plan before (planner/lowering.h);
// all plans run in the same memory.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "runtime/profile.h"
#include "runtime/session.h"

namespace ingot {

struct RegionOptions {
  std::shared_ptr<KernelSource> kernels;  // may be null: all native
  int threads = 1;
  size_t plans = 16;             // kept
  int64_t memory = 0;            // bytes that the tensors of a run may take
  bool flush_denormals = false;  // kernels take them for 0, and give 0 for them
  std::shared_ptr<Profile> profile;
  std::vector<Tied> tied;        // outputs that are made in the memory of an input where they can be
  std::vector<size_t> decisive;  // inputs whose elements plans may depend on: few numbers
};

class Region {
 public:
  Region(std::shared_ptr<const Graph> graph, const RegionOptions&);
  ~Region();
  // What one caller keeps between runs, one at a time: the plan for the last shapes and memory to run it.
  struct Memo;
  using MemoPtr = std::shared_ptr<Memo>;
  void run(const std::vector<TensorView>& inputs, const OutputAllocator& allocate);
  // The same with a memo, which the first run makes. Shapes that stay the same are then not looked up again.
  // Tied outputs that this run makes in the memory of their inputs get none of their own: `taken` is told of them
  // before anything is computed.
  using TakenOver = std::function<void(size_t output, const std::vector<int64_t>& dims)>;
  void run(const std::vector<TensorView>& inputs, const OutputAllocator& allocate, MemoPtr&,
           const TakenOver& taken = nullptr);
  void prepare();  // plans, if all input shapes are known
  int64_t arena_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Inputs have different sizes where the model gives their dims one name.
struct DimsDisagree : Error {
  using Error::Error;
};

// Size and input by which each symbol was first bound.
using BoundSymbols = std::map<std::string, std::pair<int64_t, std::string>>;
// InvalidInput when what was given does not fit what the graph says of its input; DimsDisagree is one of these.
void check_input(const Tensor& want, const TensorView& got, BoundSymbols& symbols);
void check_inputs(const Graph&, const std::vector<TensorView>& inputs);

}  // namespace ingot
