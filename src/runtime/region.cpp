#include "runtime/region.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <list>
#include <mutex>

#include "base/checked.h"
#include "base/error.h"
#include "base/stop.h"
#include "ops/layout.h"
#include "planner/plan.h"
#include "runtime/profile.h"
#include "runtime/ready.h"
#include "runtime/thread_pool.h"

namespace ingot {
namespace {

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
  const BoundStep* step;
  KernelFn function;
  void* const* operands;
  std::byte* scratch;
  int64_t scratch_stride;
  bool flush_denormals;
  const Stop* stop;  // null: the step is not cut for it
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

void run_piece(StepCall* c, const PieceOfWork& piece) {
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

constexpr int64_t kCuts = 128;  // of a range, where the run may be stopped

void run_range(void* context, const PieceOfWork& range) {
  auto* c = static_cast<StepCall*>(context);
  if (!c->stop) return run_piece(c, range);
  PieceOfWork piece = range;
  const int64_t size = std::max(c->step->step.grain, (range.end - range.begin) / kCuts + 1);
  for (; piece.begin < range.end && !c->stop->is_over(); piece.begin = piece.done = piece.end) {
    piece.end = std::min(range.end, piece.begin + size);
    run_piece(c, piece);
  }
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
  std::list<std::pair<PlanInputs, std::shared_ptr<Entry>>> cache;  // most recently used first
  struct Planner {
    Lowering lowering;
    PlacedBuffers placed;
  };
  std::map<std::vector<TensorId>, std::unique_ptr<Planner>> planners;  // by targets; as the last plan left them
  std::shared_ptr<Contexts> contexts = std::make_shared<Contexts>();
  std::atomic<int64_t> arena{0};

  static std::string_view bytes_of(const TensorView& v) {
    return {static_cast<const char*>(v.data), static_cast<size_t>(byte_size(v.dtype, product_of(v.dims)))};
  }
  bool fits(const PlanInputs& planned, const std::vector<TensorView>& inputs) const {
    const auto same_dims = [](const PlanInput& p, const TensorView& v) { return p.dims == v.dims; };
    return std::all_of(options.decisive.begin(), options.decisive.end(),
                       [&](size_t i) { return planned[i].elements == bytes_of(inputs[i]); }) &&
           std::equal(planned.begin(), planned.end(), inputs.begin(), inputs.end(), same_dims);
  }
  PlanInputs plan_inputs(const std::vector<TensorView>& inputs) const {
    PlanInputs out;
    for (const TensorView& v : inputs) out.push_back({v.dims});
    for (size_t i : options.decisive) out[i].elements = bytes_of(inputs[i]);
    return out;
  }

  std::shared_ptr<Entry> entry_for(const std::vector<TensorView>& inputs) {
    std::lock_guard lock(mutex);
    for (auto it = cache.begin(); it != cache.end(); ++it)
      if (fits(it->first, inputs)) {
        if (it != cache.begin()) cache.splice(cache.begin(), cache, it);
        return it->second;
      }
    return nullptr;
  }

  std::shared_ptr<Ready> plan(const PlanInputs& inputs, const std::vector<TensorId>& targets,
                              const KnownValues& known) {
    std::unique_ptr<Planner> planner;  // one thread at a time has it; another makes its own
    {
      std::lock_guard lock(mutex);
      planner = std::move(planners[targets]);
    }
    if (!planner) planner = std::make_unique<Planner>(Lowering(*graph, targets));
    std::exception_ptr failure;
    std::shared_ptr<Ready> ready;
    try {
      Lowering& lowering = planner->lowering;
      lowering.update(inputs, known);
      const bool whole = targets == graph->outputs;
      ready = std::make_shared<Ready>(
          make_plan(lowering, options.kernels.get(), whole ? options.tied : std::vector<Tied>(), &planner->placed),
          options.threads);
      if (ready->bytes() > options.memory) over_memory_limit(ready->bytes(), options.memory);
      if (options.profile) ready->infos = lowering.infos();
    } catch (...) {
      failure = std::current_exception();
    }
    std::lock_guard lock(mutex);
    planners[targets] = std::move(planner);
    if (failure) std::rethrow_exception(failure);
    return ready;
  }

  void resolve(Entry& e, const PlanInputs& inputs, const KnownValues& known) {
    try {
      e.ready = plan(inputs, graph->outputs, known);
    } catch (const DataNeeded& d) {
      e.needed = d.tensor;
    }
    // What decides a shape may itself have a shape that data decide: the first of them is found first.
    const auto& in = graph->inputs;
    while (!e.ready && !e.finder && std::find(in.begin(), in.end(), e.needed) == in.end()) try {
        e.finder = plan(inputs, {e.needed}, known);
      } catch (const DataNeeded& before) {
        e.needed = before.tensor;
      }
  }

  std::shared_ptr<Entry> new_entry(const PlanInputs& inputs) {
    auto e = std::make_shared<Entry>();
    resolve(*e, inputs, {});
    std::lock_guard lock(mutex);
    cache.emplace_front(inputs, e);
    while (cache.size() > options.plans) cache.pop_back();
    return e;
  }

  // The plan for these inputs; where shapes depend on data, finds the data first. `by_shape`: they do not.
  std::shared_ptr<Ready> plan_for(const std::vector<TensorView>& inputs, bool& by_shape) {
    if (inputs.size() != graph->inputs.size()) check_inputs(*graph, inputs);
    for (size_t i = 0; i < inputs.size(); i++)
      if (inputs[i].dtype != graph->info(graph->inputs[i]).dtype || !inputs[i].data) check_inputs(*graph, inputs);
    std::shared_ptr<Entry> e = entry_for(inputs);
    if (!e) {
      check_inputs(*graph, inputs);
      e = new_entry(plan_inputs(inputs));
    }
    KnownValues known;
    by_shape = e->ready != nullptr;
    while (!e->ready) {
      const ConstantPtr data = find_values(*e, inputs);
      known[e->needed] = data;
      const std::string found(reinterpret_cast<const char*>(data->bytes.data()), data->bytes.size());
      const std::shared_ptr<Entry> held = e;  // another thread may evict it while its mutex is locked here
      std::lock_guard lock(held->mutex);
      auto& next = e->next[found];
      if (!next) {
        if (e->next.size() > options.plans) e->next.clear();
        auto fresh = std::make_shared<Entry>();
        resolve(*fresh, plan_inputs(inputs), known);
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
    const Plan::Result& result = e.finder->plan.results[0];
    const int64_t n = product_of(result.dims);
    if (n > static_cast<int64_t>(kMaxValues))
      ingot::fail(ErrorKind::Unsupported, "tensor '{}' decides a shape but has {} elements",
                  graph->tensor(e.needed).name, n);
    std::byte* data = nullptr;
    ConstantPtr c = make_constant(result.dtype, result.dims, &data);
    std::unique_ptr<Context> context = contexts->take(*e.finder);
    execute(*e.finder, *context, inputs, {data});
    contexts->give_back(std::move(context));
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
    Stop* const stop = stop_in_force;
    const Stop* const cutting = stop && stop->cuts() ? stop : nullptr;
    for (size_t s = 0; s < r.plan.steps.size(); s++) {
      if (stop) stop->check();
      run_step(r, s, c, alone ? 1 : options.threads, cutting, missed);
    }
    if (cutting) stop->check();  // the last step may have been left
    if (timed) r.run_alone.ran(alone, Profile::now() - start);
    if (missed) options.kernels->missed();
    for (const Copy& copy : r.plan.copies)
      std::memcpy(outputs[static_cast<size_t>(copy.output)], address(copy.from), static_cast<size_t>(copy.bytes));
  }

  void run(Ready& r, Context& c, const std::vector<TensorView>& inputs, const OutputAllocator& allocate_output,
           std::vector<void*>& outputs, const TakenOver& taken = nullptr) {
    arena.store(r.plan.arena_bytes, std::memory_order_relaxed);
    outputs.clear();
    for (size_t i = 0; i < r.plan.results.size(); i++) {
      const Plan::Result& result = r.plan.results[i];
      outputs.push_back(result.in_input < 0 ? allocate_output(i, result.dtype, result.dims) : nullptr);
      if (result.in_input >= 0) taken(i, result.dims);
    }
    execute(r, c, inputs, outputs);
  }

  void run_step(Ready& r, size_t s, Context& c, int threads, const Stop* stop, bool& missed) {
    const PlannedStep& p = r.plan.steps[s];
    const BoundStep& b = *p.bound;
    // One choice for all threads of the step; specialised code may come while it runs.
    const KernelFn specialised = b.specialised ? b.specialised->function.load(std::memory_order_acquire) : nullptr;
    const bool misses = b.specialised && !specialised, timed = misses || options.profile;
    StepCall call{&b,
                  specialised ? specialised : b.native,
                  c.pointers.data() + r.first[s],
                  c.scratch.get(),
                  r.scratch_stride,
                  options.flush_denormals,
                  stop,
                  {kOk}};
    const int64_t start = timed ? Profile::now() : 0;
    if (threads == 1 || b.step.units <= b.step.grain)
      run_range(&call, {0, b.step.units, 0, 0});
    else
      parallel_for(b.step.units, b.step.grain, threads, run_range, &call);
    const int64_t end = timed ? Profile::now() : 0;
    if (misses) b.specialised->native_ns.fetch_add(end - start, std::memory_order_relaxed);
    missed |= misses;
    if (options.profile) options.profile->add(*graph, r.infos, p, specialised != nullptr, start, end);
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
  PlanInputs inputs;
  for (TensorId t : m.graph->inputs) {
    const TensorInfo& info = m.graph->info(t);
    if (!info.shape || !is_const(*info.shape)) return;
    inputs.push_back({numbers(*info.shape)});
  }
  try {
    m.new_entry(inputs);
  } catch (const Error& e) {  // the run will say so
    if (is_stop(e)) throw;
  }
}

int64_t Region::arena_bytes() const { return impl_->arena.load(); }

struct Region::Memo {
  explicit Memo(std::shared_ptr<Contexts> pool) : contexts(std::move(pool)) {}
  Memo(const Memo&) = delete;
  Memo& operator=(const Memo&) = delete;
  ~Memo() {
    if (context) contexts->give_back(std::move(context));
  }

  void set(std::shared_ptr<Ready> next) {
    ready = std::move(next);
    if (context)
      context->prepare(*ready);
    else
      context = contexts->take(*ready);
  }

  std::shared_ptr<Contexts> contexts;
  std::shared_ptr<Ready> ready;
  std::unique_ptr<Context> context;
  bool by_shape = false;  // the plan serves all data of these dims
  PlanInputs inputs;
  std::vector<void*> outputs;
};

void Region::run(const std::vector<TensorView>& inputs, const OutputAllocator& allocate_output) {
  bool by_shape = false;
  const std::shared_ptr<Ready> ready = impl_->plan_for(inputs, by_shape);
  std::unique_ptr<Context> context = impl_->contexts->take(*ready);
  std::vector<void*> outputs;
  impl_->run(*ready, *context, inputs, allocate_output, outputs);
  impl_->contexts->give_back(std::move(context));
}

void Region::run(const std::vector<TensorView>& inputs, const OutputAllocator& allocate_output, MemoPtr& kept,
                 const TakenOver& taken) {
  if (!kept) kept = std::make_shared<Memo>(impl_->contexts);
  Memo& memo = *kept;
  if (!memo.by_shape || !impl_->fits(memo.inputs, inputs)) {
    memo.by_shape = false;  // until it is there
    bool by_shape = false;
    memo.set(impl_->plan_for(inputs, by_shape));
    memo.inputs = impl_->plan_inputs(inputs);
    memo.by_shape = by_shape;
  }
  impl_->run(*memo.ready, *memo.context, inputs, allocate_output, memo.outputs, taken);
}

}  // namespace ingot
