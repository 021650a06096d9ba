// A session runs a graph: its planned parts (runtime/region.h) and what stands between them (runtime/flow.h). It does
// not know LLVM: a source of specialised kernels hands it function pointers. The same class serves the process that
// compiled the model and a model.so.
// Safe to call from many threads at once; results do not depend on the number of threads.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/limits.h"
#include "graph/graph.h"
#include "graph/value.h"
#include "planner/specialised.h"

namespace ingot {

class Session;
struct BoundGraph;
struct DimsDisagree;
struct Tied;

struct SessionOptions {
  int threads = 0;  // 0: INGOT_NUM_THREADS, affinity, cgroup quota, OMP_NUM_THREADS
  Limits limits;    // plans, memory_bytes
  // Numbers below 1.2e-38 (f32) are 0 to kernels; INGOT_DENORMALS=flush otherwise. They cost a CPU up to 150 cycles
  // each.
  bool flush_denormals = false;
  std::string profile;  // Chrome trace written when the session ends; INGOT_PROFILE otherwise
  // A graph is compiled on the word of the model that dims of the same name have the same size. Where inputs first
  // break it, this makes a session of the model that does not rely on it, and `warn` is told once. Without: an error.
  std::function<std::unique_ptr<Session>()> with_independent_dims;
  std::function<void(const std::string&)> warn;
};

// A tensor of the caller: dtype, dims and memory, row-major.
struct TensorView {
  DType dtype = DType::Undefined;
  std::vector<int64_t> dims;
  void* data = nullptr;
};

// Gives the memory for output `index` once its type and dims are known.
using OutputAllocator = std::function<void*(size_t index, DType, const std::vector<int64_t>& dims)>;

class Session {
 public:
  // kernels: where specialised code comes from; null: all kernels are native.
  Session(std::shared_ptr<const Graph> graph, std::shared_ptr<KernelSource> kernels, const SessionOptions&);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Graph& graph() const;
  int threads() const;
  // Inputs in the order of the graph's inputs, tensors of numbers all, as the outputs have to be. Throws Error, naming
  // the input and the rule broken. A run ends early when the Stop in force says so (base/stop.h): what a step wrote is
  // then lost, and the session as usable as before.
  void run(const std::vector<TensorView>& inputs, const OutputAllocator& allocate);
  // The same for any inputs and outputs: tensors of strings (Constant::strings), sequences, absent optionals.
  std::vector<Value> run(const std::vector<Value>& inputs);
  // Values of any tensors by name, also inside the graph, for debugging.
  std::vector<Value> run_for(const std::vector<Value>& inputs, const std::vector<std::string>& names);
  // Plans what can be planned before the first run: the parts of the graph whose shapes are all known. Their kernels
  // are asked for now.
  void prepare();
  // For states (runtime/state.h): the graph for these pairs; null where it is not one region. And the session of
  // SessionOptions::with_independent_dims; throws the error where there is none.
  const BoundGraph* bound_graph(const std::vector<Tied>&);
  Session& with_independent_dims(const DimsDisagree&);
  // Bytes of the arenas for the most recently used plans.
  int64_t arena_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// All inputs and outputs are tensors of numbers: run() takes them as views.
bool has_plain_ports(const Graph&);
// A value that lies in the caller's memory.
Value borrow(const TensorView&);
TensorView view_of(const Value&);
void set_view(TensorView&, const Constant&);

}  // namespace ingot
