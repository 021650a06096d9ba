#include "runtime/session.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "base/error.h"
#include "base/memory.h"
#include "runtime/bound_graph.h"
#include "runtime/flow.h"
#include "runtime/thread_pool.h"

namespace ingot {
namespace {

bool is_string(const ConstantPtr& c) { return c && c->dtype == DType::String; }

bool has_constant_strings(const Graph& g) {
  for (const Tensor& t : g.tensors)
    if (is_string(t.info.constant)) return true;
  for (const Node& n : g.nodes)
    for (const auto& [attr, value] : n.attrs)
      if (const auto* body = std::get_if<GraphPtr>(&value); body && has_constant_strings(**body)) return true;
  return false;
}

// The graph with its constant strings as the pool's numbers, subgraphs too; itself when there are none.
std::shared_ptr<const Graph> intern_constants(const std::shared_ptr<const Graph>& graph, StringPool& pool) {
  if (!has_constant_strings(*graph)) return graph;
  auto copy = std::make_shared<Graph>(*graph);
  for (Tensor& t : copy->tensors)
    if (is_string(t.info.constant)) t.info.constant = intern_strings(t.info.constant, pool);
  for (Node& n : copy->nodes)
    for (auto& [attr, value] : n.attrs)
      if (auto* body = std::get_if<GraphPtr>(&value))
        *body = std::const_pointer_cast<Graph>(intern_constants(*body, pool));
  return copy;
}

Value intern(const Value& v, StringPool& pool) {
  return v.map([&](const ConstantPtr& c) { return is_string(c) ? intern_strings(c, pool) : c; });
}

Value spell(const Value& v, const StringPool& pool) {
  return v.map([&](const ConstantPtr& c) { return is_string(c) ? spell_strings(c, pool) : c; });
}

void check_value(const Tensor& want, const Value& got, BoundSymbols& symbols) {
  const Form form = want.info.form;
  if (got.is_none()) {
    if (form == Form::Tensor || form == Form::Sequence) invalid_input("input '{}' has no value", want.name);
    return;
  }
  const bool sequence = form == Form::Sequence || form == Form::OptionalSequence;
  if (got.is_sequence() != sequence)
    invalid_input("input '{}' must be a {}", want.name, sequence ? "sequence" : "tensor");
  if (!sequence) return check_input(want, view_of(got), symbols);
  for (const Value& item : got.items())
    if (!item.is_tensor() || (want.info.dtype != DType::Undefined && item.tensor().dtype != want.info.dtype))
      invalid_input("input '{}' must be a sequence of tensors of {}", want.name, name(want.info.dtype));
}

bool flush_asked_for() {
  const char* text = std::getenv("INGOT_DENORMALS");
  const std::string_view wanted = text ? text : "";
  if (!wanted.empty() && wanted != "keep" && wanted != "flush")
    invalid_input("INGOT_DENORMALS={}: neither keep nor flush", wanted);
  return wanted == "flush";
}

}  // namespace

bool has_plain_ports(const Graph& g) {
  auto plain = [&](TensorId t) { return is_numbers(g.info(t)); };
  return std::all_of(g.inputs.begin(), g.inputs.end(), plain) && std::all_of(g.outputs.begin(), g.outputs.end(), plain);
}

Value borrow(const TensorView& v) {
  auto c = std::make_shared<Constant>();
  c->dtype = v.dtype;
  c->dims = v.dims;
  c->bytes = {static_cast<const std::byte*>(v.data), static_cast<size_t>(byte_size(v.dtype, c->elements()))};
  return ConstantPtr(std::move(c));
}

void set_view(TensorView& view, const Constant& c) {
  static std::byte nowhere[1];  // an empty tensor has an address too
  view.dtype = c.dtype;
  view.dims = c.dims;
  view.data = c.bytes.data() ? const_cast<std::byte*>(c.bytes.data()) : nowhere;
}

TensorView view_of(const Value& v) {
  TensorView out;
  set_view(out, v.tensor());
  return out;
}

struct Session::Impl {
  SessionOptions session_options;
  std::mutex mutex;                      // guards the making of `independent` and `bound`
  std::unique_ptr<Session> independent;  // of dims that share a name; made when first needed
  std::shared_ptr<const Graph> graph;
  StringPool constants;
  RegionOptions options;
  std::unique_ptr<Flow> flow;
  std::map<std::vector<Tied>, std::unique_ptr<BoundGraph>> bound;  // guarded by mutex
  bool plain = true;                                               // has_plain_ports

  void check(const std::vector<Value>& inputs) const {
    if (inputs.size() != graph->inputs.size())
      invalid_input("the model takes {} inputs, {} were given", graph->inputs.size(), inputs.size());
    BoundSymbols symbols;
    for (size_t i = 0; i < inputs.size(); i++) check_value(graph->tensor(graph->inputs[i]), inputs[i], symbols);
  }

  Session& with_independent_dims(const DimsDisagree& e) {
    if (!session_options.with_independent_dims) throw e;
    std::lock_guard lock(mutex);
    if (!independent) {
      if (session_options.warn)
        session_options.warn(e.message() + "; the model is compiled again for dims that are independent");
      independent = session_options.with_independent_dims();
    }
    return *independent;
  }

  std::vector<Value> run(Flow& f, const std::vector<Value>& inputs) {
    check(inputs);
    const BudgetScope budget(std::make_shared<MemoryBudget>(options.memory));
    StringPool pool(&constants);
    std::vector<Value> given;
    for (const Value& v : inputs) given.push_back(intern(v, pool));
    std::vector<Value> outputs = f.run(std::move(given), pool);
    for (Value& v : outputs) v = spell(v, pool);
    return outputs;
  }
};

Session::Session(std::shared_ptr<const Graph> graph, std::shared_ptr<KernelSource> kernels,
                 const SessionOptions& options)
    : impl_(std::make_unique<Impl>()) {
  impl_->session_options = options;
  impl_->graph = intern_constants(graph, impl_->constants);
  impl_->plain = has_plain_ports(*graph);
  RegionOptions& o = impl_->options;
  o.kernels = std::move(kernels);
  o.threads = default_threads(options.threads).threads;
  o.plans = static_cast<size_t>(options.limits.plans);
  o.memory = options.limits.memory_bytes > 0 ? static_cast<int64_t>(options.limits.memory_bytes) : machine_memory();
  o.flush_denormals = options.flush_denormals || flush_asked_for();
  std::string profile = options.profile;
  if (const char* env = std::getenv("INGOT_PROFILE"); profile.empty() && env) profile = env;
  if (!profile.empty()) o.profile = std::make_shared<Profile>(profile);
  impl_->flow = std::make_unique<Flow>(impl_->graph, o);
}

Session::~Session() = default;

const Graph& Session::graph() const { return *impl_->graph; }
int Session::threads() const { return impl_->options.threads; }
void Session::prepare() { impl_->flow->prepare(); }
Session& Session::with_independent_dims(const DimsDisagree& e) { return impl_->with_independent_dims(e); }

const BoundGraph* Session::bound_graph(const std::vector<Tied>& pairs) {
  if (!impl_->flow->whole()) return nullptr;
  std::lock_guard lock(impl_->mutex);
  std::unique_ptr<BoundGraph>& bound = impl_->bound[pairs];
  if (!bound) bound = bind_graph(impl_->graph, pairs, impl_->options);
  return bound.get();
}

int64_t Session::arena_bytes() const { return impl_->flow->arena_bytes(); }

void Session::run(const std::vector<TensorView>& inputs, const OutputAllocator& allocate) {
  if (Region* whole = impl_->flow->whole(); whole && impl_->plain) try {
      return whole->run(inputs, allocate);
    } catch (const DimsDisagree& e) {
      return impl_->with_independent_dims(e).run(inputs, allocate);
    }
  std::vector<Value> values;
  for (const TensorView& v : inputs) values.push_back(borrow(v));
  const std::vector<Value> outputs = run(values);
  for (size_t i = 0; i < outputs.size(); i++) {
    if (!outputs[i].is_tensor() || outputs[i].tensor().dtype == DType::String)
      unsupported("output '{}' is not a tensor of numbers", graph().tensor(graph().outputs[i]).name);
    const Constant& c = outputs[i].tensor();
    void* to = allocate(i, c.dtype, c.dims);
    if (!c.bytes.empty()) std::memcpy(to, c.bytes.data(), c.bytes.size());
  }
}

std::vector<Value> Session::run(const std::vector<Value>& inputs) try {
  return impl_->run(*impl_->flow, inputs);
} catch (const DimsDisagree& e) {
  return impl_->with_independent_dims(e).run(inputs);
}

std::vector<Value> Session::run_for(const std::vector<Value>& inputs, const std::vector<std::string>& names) {
  auto graph = std::make_shared<Graph>(*impl_->graph);
  graph->outputs.clear();
  for (const auto& n : names) {
    const TensorId t = graph->find_tensor(n);
    if (t == kNoTensor) invalid_input("there is no tensor '{}' in the graph", n);
    graph->outputs.push_back(t);
  }
  Flow flow(graph, impl_->options);
  try {
    return impl_->run(flow, inputs);
  } catch (const DimsDisagree& e) {
    return impl_->with_independent_dims(e).run_for(inputs, names);
  }
}

}  // namespace ingot
