#include "runtime/region.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <list>
#include <mutex>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "planner/plan.h"
#include "runtime/profile.h"
#include "runtime/run_alone.h"
#include "runtime/thread_pool.h"

namespace ingot {
namespace {

using InputDims = std::vector<std::vector<int64_t>>;

struct Freed {
  void operator()(void* p) const { std::free(p); }
};
using Memory = std::unique_ptr<std::byte, Freed>;

Memory allocate(int64_t bytes) {
  auto* p = static_cast<std::byte*>(aligned_memory(static_cast<size_t>(bytes)));
  if (!p) fail(ErrorKind::Resource, "no memory for {} bytes of intermediate tensors", bytes);
  return Memory(p);
}

// Memory and operand pointers of one run at a time; kept for the next run of the same plan.
struct Context {
  Memory arena, scratch;
  int64_t scratch_stride = 0;
  std::vector<void*> pointers;  // operands of all steps, flat
};

// A plan with what running it repeatedly needs.
struct Ready {
  explicit Ready(Plan p, int threads) : plan(std::move(p)) {
    scratch_stride = (plan.scratch_bytes + 127) / 64 * 64;
    scratch_total = checked_mul(scratch_stride, threads);
    for (size_t s = 0; s < plan.steps.size(); s++) {
      first.push_back(slots);
      const auto& operands = plan.steps[s].operands;
      for (size_t i = 0; i < operands.size(); i++)
        if (operands[i].kind == Location::kInput || operands[i].kind == Location::kOutput)
          external.push_back({slots + i, operands[i]});
      slots += operands.size();
    }
    for (TensorId t : plan.targets) {
      const TensorInfo& info = plan.infos[static_cast<size_t>(t)];
      outputs.push_back({info.dtype, numbers(*info.shape)});
    }
  }

  std::unique_ptr<Context> take() {
    {
      std::lock_guard lock(mutex);
      if (!free.empty()) {
        auto c = std::move(free.back());
        free.pop_back();
        return c;
      }
    }
    auto c = std::make_unique<Context>();
    c->arena = allocate(plan.arena_bytes);
    c->scratch = allocate(scratch_total);
    c->scratch_stride = scratch_stride;
    c->pointers.resize(slots);
    for (size_t s = 0; s < plan.steps.size(); s++)
      for (size_t i = 0; i < plan.steps[s].operands.size(); i++) {
        const Location& l = plan.steps[s].operands[i];
        void* p = nullptr;
        if (l.kind == Location::kConstant) p = const_cast<std::byte*>(l.data);
        if (l.kind == Location::kArena) p = c->arena.get() + l.offset;
        c->pointers[first[s] + i] = p;
      }
    return c;
  }
  void give_back(std::unique_ptr<Context> c) {
    std::lock_guard lock(mutex);
    free.push_back(std::move(c));
  }

  Plan plan;
  struct Output {
    DType dtype;
    std::vector<int64_t> dims;
  };
  std::vector<Output> outputs;
  int64_t scratch_stride = 0, scratch_total = 0;
  size_t slots = 0;
  std::vector<size_t> first;
  struct External {
    size_t slot;
    Location location;
  };
  std::vector<External> external;
  RunAlone run_alone;
  std::mutex mutex;
  std::vector<std::unique_ptr<Context>> free;
};

// What is known for one set of input shapes: a plan, or, where shapes depend on data, the plan that finds the data
// and what follows for each value it has had.
struct Entry {
  std::shared_ptr<Ready> ready;
  TensorId needed = kNoTensor;
  std::shared_ptr<Ready> finder;
  std::map<std::string, std::shared_ptr<Entry>> next;  // by the bytes of the data
  std::mutex mutex;
};

struct StepCall {
  const PlannedStep* step;
  KernelFn function;
  void* const* operands;
  std::byte* scratch;
  int64_t scratch_stride;
  bool flush_denormals;
  std::atomic<int32_t> status{kOk};
};

// Sets and restores how this thread treats denormals.
class DenormalMode {
 public:
  explicit DenormalMode(bool flush) : flush_(flush) {
    constexpr unsigned kAsZero = 0x0040, kToZero = 0x8000;  // operands, results
    if (flush_) __builtin_ia32_ldmxcsr((before_ = __builtin_ia32_stmxcsr()) | kAsZero | kToZero);
  }
  ~DenormalMode() {
    if (flush_) __builtin_ia32_ldmxcsr(before_);
  }
  DenormalMode(const DenormalMode&) = delete;
  DenormalMode& operator=(const DenormalMode&) = delete;

 private:
  const bool flush_;
  unsigned before_ = 0;
};

void run_range(void* context, const PieceOfWork& piece) {
  auto* c = static_cast<StepCall*>(context);
  KernelCall call{c->operands,
                  c->step->step.params.data(),
                  c->step->program.get(),
                  piece.begin,
                  piece.end,
                  c->scratch + piece.worker * c->scratch_stride,
                  piece.done};
  const DenormalMode mode(c->flush_denormals);
  if (KernelStatus s = c->function(&call); s != kOk) c->status.store(s, std::memory_order_relaxed);
}

const char* status_text(int32_t s) {
  switch (s) {
    case kIndexOutOfRange:
      return "an index is out of range";
    case kDivisionByZero:
      return "integer division by zero";
    default:
      return "a value is outside what the operator allows";
  }
}

}  // namespace

void check_input(const Tensor& want, const TensorView& got, BoundSymbols& symbols) {
  if (got.dtype != want.info.dtype)
    invalid_input("input '{}' must be {}, got {}", want.name, name(want.info.dtype), name(got.dtype));
  for (int64_t d : got.dims)
    if (d < 0) invalid_input("input '{}' has a negative size: {}", want.name, str(to_shape(got.dims)));
  if (!want.info.shape) return;
  const Shape& shape = *want.info.shape;
  if (got.dims.size() != shape.size())
    invalid_input("input '{}' must have rank {} {}, got rank {} {}", want.name, shape.size(), str(shape),
                  got.dims.size(), str(to_shape(got.dims)));
  for (size_t d = 0; d < shape.size(); d++) {
    if (shape[d].is_const()) {
      if (shape[d].value() != got.dims[d])
        invalid_input("input '{}' must have shape {}, got {}: dim {} differs", want.name, str(shape),
                      str(to_shape(got.dims)), d);
      continue;
    }
    auto [it, fresh] = symbols.try_emplace(shape[d].str(), got.dims[d], want.name);
    if (!fresh && it->second.first != got.dims[d])
      throw DimsDisagree(ErrorKind::InvalidInput,
                         fmt::format("inputs '{}' and '{}' must agree on '{}', got {} and {}", it->second.second,
                                     want.name, shape[d].str(), it->second.first, got.dims[d]),
                         "if the model gave one name to dims that differ, compile it with independent dims");
  }
  int64_t elements = 1;
  for (int64_t d : got.dims) elements = checked_mul(elements, d);
  if (elements > 0 && !got.data) invalid_input("input '{}' has no data", want.name);
}

void check_inputs(const Graph& graph, const std::vector<TensorView>& inputs) {
  if (inputs.size() != graph.inputs.size())
    invalid_input("the model takes {} inputs, {} were given", graph.inputs.size(), inputs.size());
  BoundSymbols symbols;
  for (size_t i = 0; i < inputs.size(); i++) check_input(graph.tensor(graph.inputs[i]), inputs[i], symbols);
}

struct Region::Impl {
  std::shared_ptr<const Graph> graph;
  RegionOptions options;
  std::mutex mutex;
  std::list<std::pair<InputDims, std::shared_ptr<Entry>>> cache;  // most recently used first
  std::atomic<int64_t> arena{0};

  std::shared_ptr<Entry> entry_for(const std::vector<TensorView>& inputs) {
    auto same = [&](const InputDims& dims) {
      for (size_t i = 0; i < dims.size(); i++)
        if (dims[i] != inputs[i].dims) return false;
      return true;
    };
    std::lock_guard lock(mutex);
    for (auto it = cache.begin(); it != cache.end(); ++it)
      if (same(it->first)) {
        if (it != cache.begin()) cache.splice(cache.begin(), cache, it);
        return it->second;
      }
    return nullptr;
  }

  void resolve(Entry& e, const InputDims& dims, const KnownValues& known, const std::vector<TensorId>& targets) {
    try {
      e.ready =
          std::make_shared<Ready>(make_plan(*graph, dims, targets, options.kernels.get(), known), options.threads);
    } catch (const DataNeeded& d) {
      e.needed = d.tensor;
    }
    // What decides a shape may itself have a shape that data decide: the first of them is found first.
    const auto& in = graph->inputs;
    while (!e.ready && !e.finder && std::find(in.begin(), in.end(), e.needed) == in.end()) try {
        e.finder =
            std::make_shared<Ready>(make_plan(*graph, dims, {e.needed}, options.kernels.get(), known), options.threads);
      } catch (const DataNeeded& before) {
        e.needed = before.tensor;
      }
  }

  std::shared_ptr<Entry> new_entry(const InputDims& dims) {
    auto e = std::make_shared<Entry>();
    resolve(*e, dims, {}, graph->outputs);
    std::lock_guard lock(mutex);
    cache.emplace_front(dims, e);
    while (cache.size() > options.plans) cache.pop_back();
    return e;
  }

  // The plan for these inputs; where shapes depend on data, finds the data first. `by_shape`: they do not.
  std::shared_ptr<Ready> plan_for(const std::vector<TensorView>& inputs, bool& by_shape) {
    if (inputs.size() != graph->inputs.size()) check_inputs(*graph, inputs);
    for (size_t i = 0; i < inputs.size(); i++)
      if (inputs[i].dtype != graph->info(graph->inputs[i]).dtype || !inputs[i].data) check_inputs(*graph, inputs);
    std::shared_ptr<Entry> e = entry_for(inputs);
    InputDims dims;
    if (!e) {
      check_inputs(*graph, inputs);
      for (const auto& i : inputs) dims.push_back(i.dims);
      e = new_entry(dims);
    }
    KnownValues known;
    by_shape = e->ready != nullptr;
    while (!e->ready) {
      if (dims.empty())
        for (const auto& i : inputs) dims.push_back(i.dims);
      const ConstantPtr data = find_values(*e, inputs);
      known[e->needed] = data;
      const std::string found(reinterpret_cast<const char*>(data->bytes.data()), data->bytes.size());
      const std::shared_ptr<Entry> held = e;  // another thread may evict it while its mutex is locked here
      std::lock_guard lock(held->mutex);
      auto& next = e->next[found];
      if (!next) {
        if (e->next.size() > options.plans) e->next.clear();
        auto fresh = std::make_shared<Entry>();
        resolve(*fresh, dims, known, graph->outputs);
        e->next[found] = fresh;
        e = fresh;
      } else {
        e = next;
      }
    }
    return e->ready;
  }

  ConstantPtr find_values(Entry& e, const std::vector<TensorView>& inputs) {
    const auto given = std::find(graph->inputs.begin(), graph->inputs.end(), e.needed);
    if (given != graph->inputs.end()) {
      const Value v = borrow(inputs[static_cast<size_t>(given - graph->inputs.begin())]);
      return make_constant(v.tensor().dtype, v.tensor().dims, v.tensor().bytes);
    }
    const TensorInfo& info = e.finder->plan.infos[static_cast<size_t>(e.needed)];
    const int64_t n = product(*info.shape).value();
    if (n > static_cast<int64_t>(kMaxValues))
      ingot::fail(ErrorKind::Unsupported, "tensor '{}' decides a shape but has {} elements",
                  graph->tensor(e.needed).name, n);
    std::byte* data = nullptr;
    ConstantPtr c = make_constant(info.dtype, numbers(*info.shape), &data);
    std::unique_ptr<Context> context = e.finder->take();
    execute(*e.finder, *context, inputs, {data});
    e.finder->give_back(std::move(context));
    return c;
  }

  void execute(Ready& r, Context& c, const std::vector<TensorView>& inputs, const std::vector<void*>& outputs) {
    auto address = [&](const Location& l) -> std::byte* {
      switch (l.kind) {
        case Location::kInput:
          return static_cast<std::byte*>(inputs[static_cast<size_t>(l.index)].data) + l.offset;
        case Location::kOutput:
          return static_cast<std::byte*>(outputs[static_cast<size_t>(l.index)]) + l.offset;
        case Location::kConstant:
          return const_cast<std::byte*>(l.data) + l.offset;
        case Location::kArena:
          return c.arena.get() + l.offset;
        default:
          return nullptr;
      }
    };
    for (const auto& x : r.external) c.pointers[x.slot] = address(x.location);
    bool missed = false;
    const bool alone = options.threads == 1 || r.run_alone.alone(), timed = options.threads > 1 && r.run_alone.timed();
    const int64_t start = timed ? Profile::now() : 0;
    for (size_t s = 0; s < r.plan.steps.size(); s++) run_step(r, s, c, alone ? 1 : options.threads, missed);
    if (timed) r.run_alone.ran(alone, Profile::now() - start);
    if (missed) options.kernels->missed();
    for (const Copy& copy : r.plan.copies)
      std::memcpy(outputs[static_cast<size_t>(copy.output)], address(copy.from), static_cast<size_t>(copy.bytes));
  }

  void run(Ready& r, Context& c, const std::vector<TensorView>& inputs, const OutputAllocator& allocate_output,
           std::vector<void*>& outputs) {
    arena.store(r.plan.arena_bytes, std::memory_order_relaxed);
    outputs.clear();
    for (size_t i = 0; i < r.outputs.size(); i++)
      outputs.push_back(allocate_output(i, r.outputs[i].dtype, r.outputs[i].dims));
    execute(r, c, inputs, outputs);
  }

  void run_step(Ready& r, size_t s, Context& c, int threads, bool& missed) {
    const PlannedStep& p = r.plan.steps[s];
    // One choice for all threads of the step; specialised code may come while it runs.
    const KernelFn specialised = p.specialised ? p.specialised->function.load(std::memory_order_acquire) : nullptr;
    const bool misses = p.specialised && !specialised, timed = misses || options.profile;
    StepCall call{&p,
                  specialised ? specialised : p.native,
                  c.pointers.data() + r.first[s],
                  c.scratch.get(),
                  c.scratch_stride,
                  options.flush_denormals,
                  {kOk}};
    const int64_t start = timed ? Profile::now() : 0;
    if (threads == 1 || p.step.units <= p.step.grain)
      run_range(&call, {0, p.step.units, 0, 0});
    else
      parallel_for(p.step.units, p.step.grain, threads, run_range, &call);
    const int64_t end = timed ? Profile::now() : 0;
    if (misses) p.specialised->native_ns.fetch_add(end - start, std::memory_order_relaxed);
    missed |= misses;
    if (options.profile) options.profile->add(*graph, r.plan, p, specialised != nullptr, start, end);
    if (int32_t status = call.status.load(std::memory_order_relaxed); status != kOk)
      invalid_input("{}: {}", graph->nodes[static_cast<size_t>(p.node)].label(), status_text(status));
  }
};

Region::Region(std::shared_ptr<const Graph> graph, const RegionOptions& options) : impl_(std::make_unique<Impl>()) {
  impl_->graph = std::move(graph);
  impl_->options = options;
}

Region::~Region() = default;

void Region::prepare() {
  Impl& m = *impl_;
  InputDims dims;
  for (TensorId t : m.graph->inputs) {
    const TensorInfo& info = m.graph->info(t);
    if (!info.shape || !is_const(*info.shape)) return;
    dims.push_back(numbers(*info.shape));
  }
  try {
    m.new_entry(dims);
  } catch (const Error&) {  // the run will say so
  }
}

int64_t Region::arena_bytes() const { return impl_->arena.load(); }

struct Region::Memo {
  Memo() = default;
  Memo(const Memo&) = delete;
  Memo& operator=(const Memo&) = delete;
  ~Memo() { set(nullptr); }

  bool fits(const std::vector<TensorView>& inputs) const {
    if (!ready || dims.size() != inputs.size()) return false;
    for (size_t i = 0; i < dims.size(); i++)
      if (dims[i] != inputs[i].dims) return false;
    return true;
  }
  void set(std::shared_ptr<Ready> next) {
    if (next == ready) return;
    if (context) ready->give_back(std::move(context));
    ready = std::move(next);
    if (ready) context = ready->take();
  }

  std::shared_ptr<Ready> ready;
  std::unique_ptr<Context> context;
  bool by_shape = false;  // the plan serves all data of these dims
  InputDims dims;
  std::vector<void*> outputs;
};

void Region::run(const std::vector<TensorView>& inputs, const OutputAllocator& allocate_output) {
  bool by_shape = false;
  const std::shared_ptr<Ready> ready = impl_->plan_for(inputs, by_shape);
  std::unique_ptr<Context> context = ready->take();
  std::vector<void*> outputs;
  impl_->run(*ready, *context, inputs, allocate_output, outputs);
  ready->give_back(std::move(context));
}

void Region::run(const std::vector<TensorView>& inputs, const OutputAllocator& allocate_output, MemoPtr& kept) {
  if (!kept) kept = std::make_shared<Memo>();
  Memo& memo = *kept;
  if (!memo.by_shape || !memo.fits(inputs)) {
    memo.set(impl_->plan_for(inputs, memo.by_shape));
    memo.dims.resize(inputs.size());
    for (size_t i = 0; i < inputs.size(); i++) memo.dims[i] = inputs[i].dims;
  }
  impl_->run(*memo.ready, *memo.context, inputs, allocate_output, memo.outputs);
}

}  // namespace ingot
