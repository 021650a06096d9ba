// A resolved plan: everything a run needs once the input shapes are known. Steps in order, each with its kernel's
// function, parameters and operand slots; every tensor placed in one arena by lifetime, in the caller's memory, or in
// the model's constants. Running it does no shape work and no allocation.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "kernels/abi.h"
#include "planner/lowering.h"

namespace ingot {

// Where an operand's memory is.
struct Location {
  enum Kind { kNull, kInput, kOutput, kConstant, kArena } kind = kNull;
  int index = 0;                    // kInput, kOutput
  const std::byte* data = nullptr;  // kConstant
  int64_t offset = 0;               // bytes from the start of the arena, input or output
};

inline KernelFn native(const Kernel& kernel, const Target& target) {
  return kernel.native[static_cast<size_t>(target.build)];
}

struct PlannedStep {
  std::shared_ptr<const BoundStep> bound;
  int node = 0;
  std::vector<Location> operands;
};

// The last resort for a result that is not made where the caller wants it (an input or a constant returned as it is).
struct Copy {
  Location from;
  int output = 0;
  int64_t bytes = 0;
};

struct Plan {
  std::vector<PlannedStep> steps;
  struct Result {
    DType dtype;
    std::vector<int64_t> dims;
    int in_input = -1;  // the input in whose memory it is made
  };
  std::vector<Result> results;  // outputs 0, 1, ... of a run
  std::vector<Copy> copies;
  int64_t arena_bytes = 0;
  int64_t scratch_bytes = 0;      // per thread
  std::vector<ConstantPtr> kept;  // that operands lie in and the graph does not hold: known from shapes or data
};

// An input and an output that may lie in the same memory: a state, which a run leaves as the next one takes it.
struct Tied {
  size_t input = 0, output = 0;
  friend bool operator<(const Tied& a, const Tied& b) {
    return std::pair(a.input, a.output) < std::pair(b.input, b.output);
  }
};

// A piece of the arena, in use from step `first` to step `last`.
struct Buffer {
  int64_t bytes;
  int first, last;
  int64_t offset = 0;
};
// Byte offsets so that buffers in use at the same time never share memory; greedy by size. Returns the total.
int64_t place_buffers(std::vector<Buffer>&);

// Where the buffers of the last plan lie. Those of the next one mostly have the same sizes, and lie there too.
struct PlacedBuffers {
  std::vector<Buffer> buffers;
  int64_t total = 0;
};

// kernels: may be null. Binds steps of the lowering that are not bound yet. `last`: of the lowering's plan before.
Plan make_plan(const Lowering&, KernelSource* kernels, const std::vector<Tied>& = {}, PlacedBuffers* last = nullptr);

}  // namespace ingot
