// An operator: what its outputs are (infer) and which kernels compute it (lower). One file per operator or family in
// this folder defines `void register_<file>(OpRegistry&)`; the build collects the folder into the registry.
//
// Both functions run in the compiler and in the runtime. In the compiler dims may be symbols; at run time all are
// numbers, and infer and lower are run once per distinct set of input shapes.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "graph/expr.h"
#include "graph/graph.h"
#include "kernels/abi.h"
#include "kernels/sizes.h"

namespace ingot {

// Thrown by InferContext::shape when a rank is not known yet; the driver leaves the outputs' shapes unknown.
struct RankUnknown {};
// Thrown at run time when infer needs the elements of an input that only execution can tell.
struct ValuesNeeded {
  size_t input;
};

class InferContext {
 public:
  InferContext(const Node& node, std::vector<const TensorInfo*> inputs, std::vector<TensorInfo> outputs,
               bool at_run_time);

  const Node& node;
  size_t input_count() const { return inputs_.size(); }
  bool has(size_t i) const { return i < inputs_.size() && inputs_[i] != nullptr; }
  const TensorInfo& in(size_t i) const;  // error when the operand is absent
  DType dtype(size_t i) const { return in(i).dtype; }
  const Shape& shape(size_t i) const;  // throws RankUnknown
  int64_t rank(size_t i) const { return static_cast<int64_t>(shape(i).size()); }
  // Elements of a small integer (or bool) input as dims, from constants or from shapes. When they are not known:
  // nothing in the compiler (leave the dims unknown), ValuesNeeded at run time.
  std::optional<std::vector<Dim>> values(size_t i) const;
  // The same for operators that can go on without them: never throws.
  std::optional<std::vector<Dim>> known_values(size_t i) const;
  // A floating or integer scalar constant as double, if it is known.
  std::optional<double> scalar(size_t i) const;

  // attr "axis"-like: negative counts from the back; error outside [-rank, rank).
  int64_t axis(int64_t value, int64_t rank) const;

  // Set dtypes first, then touch shapes: RankUnknown must not lose the types.
  void set_dtype(size_t out, DType);
  void set_shape(size_t out, Shape);
  void set(size_t out, DType, Shape);
  void set_values(size_t out, std::vector<Dim>);  // only kept for up to kMaxValues elements
  TensorInfo& out(size_t i) { return outputs_[i]; }
  const std::vector<TensorInfo>& outputs() const { return outputs_; }
  size_t output_count() const { return outputs_.size(); }
  bool at_run_time() const { return at_run_time_; }

  // Error of this node: "Conv 'conv1': message".
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(at_run_time_ ? ErrorKind::InvalidInput : ErrorKind::InvalidModel,
                node.label() + ": " + fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void require(bool condition, fmt::format_string<Args...> format, Args&&... args) const {
    if (!condition) fail(format, std::forward<Args>(args)...);
  }

 private:
  std::vector<const TensorInfo*> inputs_;
  std::vector<TensorInfo> outputs_;
  bool at_run_time_;
};

inline constexpr size_t kMaxValues = 1024;

// Multidirectional broadcasting; fails through the context with both shapes when they do not fit.
Shape broadcast(const InferContext&, const Shape&, const Shape&);

// What one kernel call of a resolved plan needs.
struct Operand {
  enum Kind { kTensor, kTemporary, kNull } kind = kNull;
  TensorId id = kNoTensor;  // kTensor; kTemporary: steps of one node that name the same id share the memory
  int64_t bytes = 0;        // kTemporary: shared by the step's threads, dead after the last step that names it
};

struct Step {
  const Kernel* kernel = nullptr;    // ingot_gemm_f32_kernel, of kernels/gemm.h
  std::vector<Operand> operands;     // inputs, then outputs, then temporaries, as the kernel expects
  std::vector<int64_t> params;       // the kernel's Params struct, 8 bytes a field
  std::span<const SizeField> sizes;  // params that stay run-time values in specialised code; empty: there is none
  int64_t units = 1;                 // parallel range
  int64_t grain = 1;                 // units a thread takes at least
  int64_t scratch = 0;               // bytes per thread
  std::shared_ptr<const Expr> expr;  // fused expression for the hooks, with the types of its inputs
  bool specialise = false;           // enough work to be worth compiling
  int in_place = -1;                 // index into operands: an input whose memory the first output may take over
  int stream = -1;                   // the parameter that, if 1, has the last operand written past the caches
};

class LowerContext {
 public:
  LowerContext(const Node& node, const Target& target, std::vector<const TensorInfo*> inputs,
               std::vector<const TensorInfo*> outputs)
      : node(node), target(target), inputs_(std::move(inputs)), outputs_(std::move(outputs)) {}

  const Node& node;
  const Target& target;  // whose kernels run the steps
  bool has(size_t i) const { return i < inputs_.size() && inputs_[i] != nullptr; }
  bool has_out(size_t i) const { return i < outputs_.size() && outputs_[i] != nullptr; }
  const TensorInfo& in(size_t i) const;
  const TensorInfo& out(size_t i) const { return *outputs_[i]; }
  std::vector<int64_t> dims(size_t i) const { return numbers(*in(i).shape); }
  std::vector<int64_t> out_dims(size_t i) const { return numbers(*out(i).shape); }
  std::vector<int64_t> values(size_t i) const;  // elements of an integer input that infer already needed
  size_t input_count() const { return inputs_.size(); }

  Operand input(size_t i) const { return has(i) ? Operand{Operand::kTensor, node.inputs[i], 0} : Operand{}; }
  Operand output(size_t i) const { return has_out(i) ? Operand{Operand::kTensor, node.outputs[i], 0} : Operand{}; }
  // Memory of one step, and memory through which one step of this node hands data to a later one.
  static Operand temporary(int64_t bytes) { return Operand{Operand::kTemporary, kNoTensor, bytes}; }
  Operand shared_temporary(int64_t bytes) { return Operand{Operand::kTemporary, next_temporary++, bytes}; }

  Step& step(const Kernel& kernel) {
    steps.emplace_back();
    steps.back().kernel = &kernel;
    return steps.back();
  }
  // Output `out` is input `in` seen with another shape, from byte_offset on: no copy, no step.
  void view(size_t out, size_t in, int64_t byte_offset = 0) { views.push_back({out, in, byte_offset}); }

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorKind::Unsupported, node.label() + ": " + fmt::format(format, std::forward<Args>(args)...));
  }

  struct View {
    size_t out, in;
    int64_t byte_offset;
  };
  std::vector<Step> steps;
  std::vector<View> views;
  TensorId next_temporary = 0;

 private:
  std::vector<const TensorInfo*> inputs_, outputs_;
};

class HostContext;  // ops/host.h

// What an operator does with the elements of its operands; each also does what those before it do.
enum class Movement : uint8_t {
  kNone,     // computes others
  kChosen,   // results are elements of the operands: MaxPool
  kSome,     // which ones, only their positions decide: Slice, Gather, Concat
  kAll,      // the result has every element of the first operand once: Transpose, DepthToSpace
  kInOrder,  // in the same order: Reshape
};

// Facts about an operator that passes, fusions and the quantizer ask for.
struct OpTraits {
  Movement movement = Movement::kNone;
  bool commutative = false;   // its operands may stand in any order
  bool like_first = false;    // element-wise, but the result has the shape of the first operand
  bool random = false;        // other results each time it runs: neither folded nor merged
  bool control_flow = false;  // runs graphs
};

struct OpDef {
  std::string name;
  std::string domain;                  // "" or "ingot"
  int min_inputs = 0, max_inputs = 0;  // max -1: any number
  int min_outputs = 1, max_outputs = 1;
  void (*infer)(InferContext&) = nullptr;
  void (*lower)(LowerContext&) = nullptr;
  // For element-wise operators: the expression over its inputs x0, x1, ... computed for each output element.
  // With it, infer and lower are those of every element-wise operator.
  Expr (*expr)(const Node&, const std::vector<DType>& input_types) = nullptr;
  // For what no kernel can do: control flow, sequences and optionals, strings, results whose size depends on data. Such
  // nodes run between the planned parts of a graph, on whole values. An operator with both is planned where its
  // operands and results are tensors of numbers.
  void (*host)(HostContext&) = nullptr;
  OpTraits traits = {};
  size_t source = 0;  // which of ingot_ops_registrars registered it
};

class OpRegistry;
// Ends with nullptr. Generated: every register_<file> of this folder. A model.so has its own, with those it needs.
extern "C" void (*const ingot_ops_registrars[])(OpRegistry&);
extern "C" const char* const ingot_ops_registrar_symbols[];  // their linker symbols; only in the compiler

class OpRegistry {
 public:
  static const OpRegistry& get();
  OpTraits& add(OpDef);  // its traits, to be set
  const OpDef* find(const std::string& op, const std::string& domain) const;
  const OpDef& need(const Node&) const;  // Unsupported error naming node and operator
  std::vector<const OpDef*> all() const;

 private:
  size_t source_ = 0;
  std::unordered_map<std::string, OpDef> ops_;
};

// Of the node's operator; none hold for one that is not registered.
const OpTraits& traits(const Node&);

// Runs the operator's infer: checks operand counts, fills in the outputs. Names unknown dims after the output.
std::vector<TensorInfo> infer_node(const Graph&, const Node&, const std::vector<TensorInfo>& known, bool at_run_time);

}  // namespace ingot
