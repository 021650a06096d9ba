#include "planner/plan.h"

#include <algorithm>
#include <climits>
#include <set>

#include "planner/program.h"

namespace ingot {
namespace {

// The elements as bytes of the tensor's type, for kernels that read what shapes alone decided.
ConstantPtr materialise(const TensorInfo& info) {
  std::byte* data = nullptr;
  ConstantPtr c = make_constant(info.dtype, numbers(*info.shape), &data);
  const size_t size = static_cast<size_t>(bits(info.dtype)) / 8;
  for (size_t i = 0; i < info.values->size(); i++) {
    const int64_t v = (*info.values)[i].value();
    std::copy_n(reinterpret_cast<const std::byte*>(&v), size, data + i * size);  // little endian
  }
  return c;
}

constexpr int64_t kStreamedBytes = int64_t{4} << 20;

struct Life {
  int first = INT_MAX, last = -1;
};

// Assigns a location to every root tensor and to the temporaries of steps.
class Placement {
 public:
  Placement(const Graph& g, Lowered& low, Plan& plan) : g_(g), low_(low), plan_(plan), life_(g.tensors.size()) {
    where_.resize(g.tensors.size());
    merged_.resize(g.tensors.size());
    for (size_t i = 0; i < merged_.size(); i++) merged_[i] = static_cast<TensorId>(i);
  }

  void run() {
    find_lifetimes();
    place_fixed();
    bind_outputs();
    reuse_in_place();
    place_arena();
    stream_results();
    for (size_t s = 0; s < low_.steps.size(); s++) locate_operands(s);
    for (size_t i = 0; i < plan_.targets.size(); i++) copy_output(static_cast<int>(i));
  }

 private:
  size_t root(TensorId t) const {
    TensorId r = low_.alias[static_cast<size_t>(t)].root;
    while (merged_[static_cast<size_t>(r)] != r) r = merged_[static_cast<size_t>(r)];
    return static_cast<size_t>(r);
  }
  int64_t bytes(TensorId t) const {
    const TensorInfo& i = low_.infos[static_cast<size_t>(t)];
    return byte_size(i.dtype, product(*i.shape).value());
  }
  void touch(TensorId t, int step) {
    Life& l = life_[root(t)];
    l.first = std::min(l.first, step);
    l.last = std::max(l.last, step);
  }
  void find_lifetimes() {
    for (size_t s = 0; s < low_.steps.size(); s++)
      for (const Operand& o : low_.steps[s].operands)
        if (o.kind == Operand::kTensor) touch(o.id, static_cast<int>(s));
    for (TensorId t : plan_.targets) touch(t, INT_MAX - 1);
  }
  void place_fixed() {
    for (size_t i = 0; i < g_.inputs.size(); i++)
      where_[static_cast<size_t>(g_.inputs[i])] = {Location::kInput, static_cast<int>(i), nullptr, 0};
    for (size_t i = 0; i < low_.infos.size(); i++) {
      if (life_[i].last < 0 || where_[i].kind == Location::kInput) continue;
      ConstantPtr c = low_.infos[i].constant;
      if (!c && low_.infos[i].values) {
        c = materialise(low_.infos[i]);
        plan_.materialised.push_back(c);
      }
      if (c) where_[i] = {Location::kConstant, 0, c->bytes.data(), 0};
    }
  }
  // A target made by a step is made in the caller's memory when nothing else needs that memory.
  void bind_outputs() {
    for (size_t i = 0; i < plan_.targets.size(); i++) {
      const TensorId t = plan_.targets[i];
      const size_t r = root(t);
      if (where_[r].kind != Location::kNull || low_.alias[static_cast<size_t>(t)].offset != 0) continue;
      if (bytes(t) != bytes(static_cast<TensorId>(r))) continue;
      where_[r] = {Location::kOutput, static_cast<int>(i), nullptr, 0};
    }
  }
  void reuse_in_place() {
    for (size_t s = 0; s < low_.steps.size(); s++) {
      const Step& step = low_.steps[s];
      if (step.in_place < 0) continue;
      const Operand& in = step.operands[static_cast<size_t>(step.in_place)];
      if (in.kind != Operand::kTensor) continue;
      const Node& node = g_.nodes[static_cast<size_t>(low_.step_node[s])];
      const TensorId out = node.outputs[0];
      const size_t from = root(in.id), to = root(out);
      if (from == to || life_[from].last != static_cast<int>(s) || life_[to].first != static_cast<int>(s)) continue;
      if (where_[from].kind != Location::kNull || where_[to].kind != Location::kNull) continue;
      if (low_.alias[static_cast<size_t>(in.id)].offset != 0 || bytes(static_cast<TensorId>(from)) != bytes(out))
        continue;
      // Another view of the same memory may be read in another order: x + x[0:1].
      if (std::any_of(step.operands.begin(), step.operands.end(), [&](const Operand& o) {
            return o.kind == Operand::kTensor && o.id != in.id && root(o.id) == from;
          }))
        continue;
      merged_[to] = static_cast<TensorId>(from);
      life_[from].last = life_[to].last;
    }
  }
  void place_arena() {
    std::vector<Buffer> buffers;
    std::vector<size_t> owner;
    for (size_t i = 0; i < where_.size(); i++) {
      if (where_[i].kind != Location::kNull || life_[i].last < 0 || root(static_cast<TensorId>(i)) != i) continue;
      buffers.push_back({bytes(static_cast<TensorId>(i)), life_[i].first, life_[i].last});
      owner.push_back(i);
    }
    const size_t tensors = buffers.size();
    std::map<std::pair<int, TensorId>, size_t> shared;  // by node and id
    std::vector<size_t> buffer_of;                      // per use of a temporary
    for (size_t s = 0; s < low_.steps.size(); s++)
      for (const Operand& o : low_.steps[s].operands) {
        if (o.kind != Operand::kTemporary) continue;
        const int step = static_cast<int>(s);
        size_t buffer = buffers.size();
        if (o.id != kNoTensor) buffer = shared.try_emplace({low_.step_node[s], o.id}, buffer).first->second;
        if (buffer == buffers.size())
          buffers.push_back({o.bytes, step, step});
        else
          buffers[buffer].last = step;
        buffer_of.push_back(buffer);
      }
    plan_.arena_bytes = place_buffers(buffers);
    for (size_t b = 0; b < tensors; b++) where_[owner[b]] = {Location::kArena, 0, nullptr, buffers[b].offset};
    for (size_t b : buffer_of) temporaries_.push_back(buffers[b].offset);
  }
  // Results that are only copied for the caller, where they are more than would stay in the caches.
  void stream_results() {
    std::vector<bool> used(g_.tensors.size());  // by more than copies that write it
    std::vector<size_t> copies;
    for (size_t s = 0; s < low_.steps.size(); s++) {
      const Step& step = low_.steps[s];
      const size_t kept = step.operands.size() - (step.stream >= 0 ? 1 : 0);
      for (size_t i = 0; i < kept; i++)
        if (step.operands[i].kind == Operand::kTensor) used[root(step.operands[i].id)] = true;
      if (step.stream >= 0 && step.operands.back().kind == Operand::kTensor) copies.push_back(s);
    }
    auto result = [&](size_t s) { return root(low_.steps[s].operands.back().id); };
    std::erase_if(copies, [&](size_t s) { return used[result(s)] || where_[result(s)].kind != Location::kOutput; });
    std::set<size_t> results;
    for (size_t s : copies) results.insert(result(s));
    int64_t total = 0;
    for (size_t r : results) total += bytes(static_cast<TensorId>(r));
    if (total < kStreamedBytes) return;
    for (size_t s : copies) low_.steps[s].params[static_cast<size_t>(low_.steps[s].stream)] = 1;
  }
  Location locate(TensorId t) const {
    Location l = where_[root(t)];
    const int64_t offset = low_.alias[static_cast<size_t>(t)].offset;
    if (l.kind == Location::kConstant)
      l.data += offset;
    else
      l.offset += offset;
    return l;
  }
  void locate_operands(size_t s) {
    PlannedStep planned;
    planned.node = low_.step_node[s];
    for (const Operand& o : low_.steps[s].operands) {
      if (o.kind == Operand::kTensor)
        planned.operands.push_back(locate(o.id));
      else if (o.kind == Operand::kTemporary)
        planned.operands.push_back({Location::kArena, 0, nullptr, temporaries_[next_temporary_++]});
      else
        planned.operands.emplace_back();
    }
    planned.step = std::move(low_.steps[s]);
    plan_.steps.push_back(std::move(planned));
  }
  void copy_output(int i) {
    const TensorId t = plan_.targets[static_cast<size_t>(i)];
    Location l = locate(t);
    if (l.kind == Location::kOutput && l.index == i && l.offset == 0) return;
    if (bytes(t) > 0) plan_.copies.push_back({l, i, bytes(t)});
  }

  const Graph& g_;
  Lowered& low_;
  Plan& plan_;
  std::vector<Life> life_;
  std::vector<Location> where_;
  std::vector<TensorId> merged_;      // in-place results share the memory of this root
  std::vector<int64_t> temporaries_;  // offset of each use, in order
  size_t next_temporary_ = 0;
};

// Specialised code for the steps that want it, and for those that have none yet what the native build needs.
void bind_kernels(Plan& plan, KernelSource* source, const Target& target) {
  std::vector<const Step*> wanted;
  std::vector<PlannedStep*> steps;
  for (PlannedStep& p : plan.steps) {
    p.native = native(*p.step.kernel, target);
    if (!source || !is_specialised(p.step)) continue;
    wanted.push_back(&p.step);
    steps.push_back(&p);
  }
  if (source) {
    const std::vector<KernelSlot*> slots = source->find(wanted);
    for (size_t i = 0; i < slots.size(); i++) steps[i]->specialised = slots[i];
  }
  for (PlannedStep& p : plan.steps) {
    if (!p.step.expr || (p.specialised && p.specialised->function.load())) continue;
    p.program = make_program(*p.step.expr, target);
    p.step.scratch = std::max(p.step.scratch, program_scratch_bytes(*p.program));
  }
}

}  // namespace

Plan make_plan(const Graph& g, const std::vector<std::vector<int64_t>>& input_dims,
               const std::vector<TensorId>& targets, KernelSource* kernels, const KnownValues& known) {
  Plan plan;
  plan.targets = targets;
  Lowered low = lower_graph(g, input_dims, targets, known);
  Placement(g, low, plan).run();
  bind_kernels(plan, kernels, target_of(g));
  for (const PlannedStep& p : plan.steps) plan.scratch_bytes = std::max(plan.scratch_bytes, p.step.scratch);
  plan.infos = std::move(low.infos);
  return plan;
}

}  // namespace ingot
