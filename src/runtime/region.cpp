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
  if (!p) invalid_input("no memory for {} bytes of intermediate tensors", bytes);
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
  int64_t scratch_stride = 0, scratch_total = 0;
  size_t slots = 0;
  std::vector<size_t> first;
  struct External {
    size_t slot;
    Location location;
  };
  std::vector<External> external;
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
  std::atomic<int32_t> status{kOk};
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
      invalid_input("inputs '{}' and '{}' must agree on '{}', got {} and {}", it->second.second, want.name,
                    shape[d].str(), it->second.first, got.dims[d]);
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
    while (!e.ready && !e.finder) try {
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

  // The plan for these inputs; where shapes depend on data, finds the data first.
  std::shared_ptr<Ready> plan_for(const std::vector<TensorView>& inputs) {
    std::shared_ptr<Entry> e = entry_for(inputs);
    InputDims dims;
    if (!e) {
      check_inputs(*graph, inputs);
      for (const auto& i : inputs) dims.push_back(i.dims);
      e = new_entry(dims);
    }
    KnownValues known;
    while (!e->ready) {
      if (dims.empty())
        for (const auto& i : inputs) dims.push_back(i.dims);
      const ConstantPtr data = find_values(*e, inputs);
      known[e->needed] = data;
      const std::string found(reinterpret_cast<const char*>(data->bytes.data()), data->bytes.size());
      std::lock_guard lock(e->mutex);
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
    const TensorInfo& info = e.finder->plan.infos[static_cast<size_t>(e.needed)];
    const int64_t n = product(*info.shape).value();
    if (n > static_cast<int64_t>(kMaxValues))
      ingot::fail(ErrorKind::Unsupported, "tensor '{}' decides a shape but has {} elements",
                  graph->tensor(e.needed).name, n);
    std::byte* data = nullptr;
    ConstantPtr c = make_constant(info.dtype, numbers(*info.shape), &data);
    execute(*e.finder, inputs, {data});
    return c;
  }

  void execute(Ready& r, const std::vector<TensorView>& inputs, const std::vector<void*>& outputs) {
    std::unique_ptr<Context> c = r.take();
    auto address = [&](const Location& l) -> std::byte* {
      switch (l.kind) {
        case Location::kInput:
          return static_cast<std::byte*>(inputs[static_cast<size_t>(l.index)].data) + l.offset;
        case Location::kOutput:
          return static_cast<std::byte*>(outputs[static_cast<size_t>(l.index)]) + l.offset;
        case Location::kConstant:
          return const_cast<std::byte*>(l.data) + l.offset;
        case Location::kArena:
          return c->arena.get() + l.offset;
        default:
          return nullptr;
      }
    };
    for (const auto& x : r.external) c->pointers[x.slot] = address(x.location);
    bool missed = false;
    for (size_t s = 0; s < r.plan.steps.size(); s++) run_step(r, s, *c, missed);
    if (missed) options.kernels->missed();
    for (const Copy& copy : r.plan.copies)
      std::memcpy(outputs[static_cast<size_t>(copy.output)], address(copy.from), static_cast<size_t>(copy.bytes));
    r.give_back(std::move(c));
  }

  void run_step(Ready& r, size_t s, Context& c, bool& missed) {
    const PlannedStep& p = r.plan.steps[s];
    // One choice for all threads of the step; specialised code may come while it runs.
    const KernelFn specialised = p.specialised ? p.specialised->function.load(std::memory_order_acquire) : nullptr;
    const bool misses = p.specialised && !specialised, timed = misses || options.profile;
    StepCall call{
        &p,   specialised ? specialised : p.native, c.pointers.data() + r.first[s], c.scratch.get(), c.scratch_stride,
        {kOk}};
    const int64_t start = timed ? Profile::now() : 0;
    if (options.threads == 1 || p.step.units <= p.step.grain)
      run_range(&call, {0, p.step.units, 0, 0});
    else
      parallel_for(p.step.units, p.step.grain, options.threads, run_range, &call);
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

void Region::run(const std::vector<TensorView>& inputs, const OutputAllocator& allocate_output) {
  Impl& m = *impl_;
  if (inputs.size() != m.graph->inputs.size()) check_inputs(*m.graph, inputs);
  for (size_t i = 0; i < inputs.size(); i++) {
    const TensorInfo& want = m.graph->info(m.graph->inputs[i]);
    if (inputs[i].dtype != want.dtype || !inputs[i].data) check_inputs(*m.graph, inputs);
  }
  std::shared_ptr<Ready> r = m.plan_for(inputs);
  m.arena.store(r->plan.arena_bytes, std::memory_order_relaxed);
  std::vector<void*> outputs;
  outputs.reserve(r->plan.targets.size());
  for (size_t i = 0; i < r->plan.targets.size(); i++) {
    const TensorInfo& info = r->plan.infos[static_cast<size_t>(r->plan.targets[i])];
    outputs.push_back(allocate_output(i, info.dtype, numbers(*info.shape)));
  }
  m.execute(*r, inputs, outputs);
}

}  // namespace ingot
