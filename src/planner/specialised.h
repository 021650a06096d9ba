// Specialised kernels: what a step may ask for, and where it finds the code.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/abi.h"
#include "ops/op.h"

namespace ingot {

// Does it ask for specialised code?
inline bool is_specialised(const Step& s) { return s.specialise && !s.sizes.empty(); }
// Which of a step's parameters are constants in its specialised code: all but its sizes (Step::sizes).
std::vector<bool> constant_params(const Step&);

// What the code of a step is compiled for, as one line: the kernel, its constants with "?" for sizes up to the last
// constant, the expression, and the types of its operands and results, which decide the code as much.
//   ingot_gemm_f32 48,1,0,0,0,0,3,0,8,?,?,?,?,?,1,?,0,1 max(x0 + x1, 0) : f32 f32 -> f32
// Steps with the same line share one kernel.
std::string kernel_key(const Step&);

// The code for one key, null until it is there: a step runs the native build of its kernel meanwhile, which gives the
// same results.
struct KernelSlot {
  std::atomic<KernelFn> function{nullptr};
  std::atomic<int64_t> native_ns{0};  // spent in the native build so far: what costs most is compiled first
};

// Gives code for steps: now, later or never.
class KernelSource {
 public:
  virtual ~KernelSource() = default;
  // The slot of each step, null where no code will come. They live as long as the source.
  virtual std::vector<KernelSlot*> find(const std::vector<const Step*>& steps) = 0;
  // A run has used native builds because code was not there yet.
  virtual void missed() {}
};

// The kernels of a library: all code is there, what is not in the list never comes.
class KernelList : public KernelSource {
 public:
  // keys: one in each line; functions: as many, in the same order.
  KernelList(const std::string& keys, const KernelFn* functions);
  std::vector<KernelSlot*> find(const std::vector<const Step*>& steps) override;

 private:
  std::map<std::string, KernelSlot> slots_;
};

// The keys of the kernels of one target.
struct TargetKernels {
  const Target* target;
  std::vector<std::string> keys;
};
// A list for each target that a library was compiled for, each after a line "target <name> <number of kernels>".
std::string write_targets(const std::vector<TargetKernels>&);
// The last target of base/targets.inc among them that this CPU runs, and its kernels. functions: those of all lists, in
// order.
struct ChosenTarget {
  const Target* target = nullptr;
  std::shared_ptr<KernelSource> kernels;
};
ChosenTarget choose_target(const std::string& text, const KernelFn* functions);

}  // namespace ingot
