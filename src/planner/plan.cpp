#include "planner/plan.h"

#include <algorithm>
#include <climits>
#include <map>
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

// The steps of all nodes in order, and which tensors are views of others.
struct StepList {
  explicit StepList(const Lowering& low) : alias(low.infos().size()) {
    for (size_t i = 0; i < alias.size(); i++) alias[i] = {static_cast<TensorId>(i), 0};
    const auto nodes = low.nodes();
    for (size_t i = 0; i < nodes.size(); i++) {
      if (!nodes[i]) continue;
      const Node& node = low.graph().nodes[i];
      for (const auto& v : nodes[i]->views) {
        const Alias& from = alias[static_cast<size_t>(node.inputs[v.in])];
        alias[static_cast<size_t>(node.outputs[v.out])] = {from.root, from.offset + v.byte_offset};
      }
      for (BoundStep& s : nodes[i]->steps) {
        steps.emplace_back(nodes[i], &s);
        step_node.push_back(static_cast<int>(i));
      }
    }
  }

  struct Alias {
    TensorId root;
    int64_t offset;
  };
  std::vector<Alias> alias;  // per tensor: itself, or the tensor it is a view of
  std::vector<std::shared_ptr<BoundStep>> steps;
  std::vector<int> step_node;
};

// Assigns a location to every root tensor and to the temporaries of steps.
class Placement {
 public:
  Placement(const Lowering& low, const StepList& list, const std::vector<Tied>& tied, PlacedBuffers& last, Plan& plan)
      : g_(low.graph()),
        infos_(low.infos()),
        targets_(low.targets()),
        list_(list),
        tied_(tied),
        last_(last),
        plan_(plan),
        life_(g_.tensors.size()) {
    where_.resize(g_.tensors.size());
    merged_.resize(g_.tensors.size());
    for (size_t i = 0; i < merged_.size(); i++) merged_[i] = static_cast<TensorId>(i);
  }

  void run() {
    find_lifetimes();
    place_fixed();
    bind_outputs();
    reuse_in_place();
    place_arena();
    const std::vector<bool> streamed = streamed_results();
    for (size_t s = 0; s < list_.steps.size(); s++) plan_step(s, streamed[s]);
    for (size_t i = 0; i < targets_.size(); i++) give_result(i);
  }

 private:
  const Step& step(size_t s) const { return list_.steps[s]->step; }
  size_t root(TensorId t) const {
    TensorId r = list_.alias[static_cast<size_t>(t)].root;
    while (merged_[static_cast<size_t>(r)] != r) r = merged_[static_cast<size_t>(r)];
    return static_cast<size_t>(r);
  }
  int64_t bytes(TensorId t) const {
    const TensorInfo& i = infos_[static_cast<size_t>(t)];
    return byte_size(i.dtype, product(*i.shape).value());
  }
  void touch(TensorId t, int step) {
    Life& l = life_[root(t)];
    l.first = std::min(l.first, step);
    l.last = std::max(l.last, step);
  }
  void find_lifetimes() {
    for (size_t s = 0; s < list_.steps.size(); s++)
      for (const Operand& o : step(s).operands)
        if (o.kind == Operand::kTensor) touch(o.id, static_cast<int>(s));
    for (TensorId t : targets_) touch(t, INT_MAX - 1);
  }
  void place_fixed() {
    for (size_t i = 0; i < g_.inputs.size(); i++)
      where_[static_cast<size_t>(g_.inputs[i])] = {Location::kInput, static_cast<int>(i), nullptr, 0};
    for (size_t i = 0; i < infos_.size(); i++) {
      if (life_[i].last < 0 || where_[i].kind == Location::kInput) continue;
      ConstantPtr c = infos_[i].constant;
      if (!c && infos_[i].values) c = materialise(infos_[i]);
      if (c && c != g_.tensors[i].info.constant) plan_.kept.push_back(c);
      if (c) where_[i] = {Location::kConstant, 0, c->bytes.data(), 0};
    }
  }
  // A target made by a step is made in the caller's memory when nothing else needs that memory.
  void bind_outputs() {
    for (size_t i = 0; i < targets_.size(); i++) {
      const TensorId t = targets_[i];
      const size_t r = root(t);
      if (where_[r].kind != Location::kNull || list_.alias[static_cast<size_t>(t)].offset != 0) continue;
      if (bytes(t) != bytes(static_cast<TensorId>(r))) continue;
      where_[r] = {Location::kOutput, static_cast<int>(i), nullptr, 0};
    }
  }
  bool is_tied(const Location& input, const Location& output) const {
    return input.kind == Location::kInput && output.kind == Location::kOutput && is_tied(input.index, output.index);
  }
  bool is_tied(int input, int output) const {
    return std::any_of(tied_.begin(), tied_.end(), [&](const Tied& t) {
      return static_cast<int>(t.input) == input && static_cast<int>(t.output) == output;
    });
  }
  // May a result take over the memory of an operand that is read for the last time?
  bool may_take_over(size_t from, size_t to) const {
    const Location &a = where_[from], &b = where_[to];
    return (a.kind == Location::kNull && b.kind == Location::kNull) || is_tied(a, b);
  }
  void reuse_in_place() {
    for (size_t s = 0; s < list_.steps.size(); s++) {
      if (step(s).in_place < 0) continue;
      const Operand& in = step(s).operands[static_cast<size_t>(step(s).in_place)];
      if (in.kind != Operand::kTensor) continue;
      const TensorId out = g_.nodes[static_cast<size_t>(list_.step_node[s])].outputs[0];
      const size_t from = root(in.id), to = root(out);
      if (from == to || life_[from].last != static_cast<int>(s) || life_[to].first != static_cast<int>(s)) continue;
      if (!may_take_over(from, to)) continue;
      if (list_.alias[static_cast<size_t>(in.id)].offset != 0 || bytes(static_cast<TensorId>(from)) != bytes(out))
        continue;
      // Another view of the same memory may be read in another order: x + x[0:1].
      if (std::any_of(step(s).operands.begin(), step(s).operands.end(), [&](const Operand& o) {
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
    for (size_t s = 0; s < list_.steps.size(); s++)
      for (const Operand& o : step(s).operands) {
        if (o.kind != Operand::kTemporary) continue;
        const int step = static_cast<int>(s);
        size_t buffer = buffers.size();
        if (o.id != kNoTensor) buffer = shared.try_emplace({list_.step_node[s], o.id}, buffer).first->second;
        if (buffer == buffers.size())
          buffers.push_back({o.bytes, step, step});
        else
          buffers[buffer].last = step;
        buffer_of.push_back(buffer);
      }
    const auto same = [](const Buffer& a, const Buffer& b) {
      return a.bytes == b.bytes && a.first == b.first && a.last == b.last;
    };
    if (!std::equal(buffers.begin(), buffers.end(), last_.buffers.begin(), last_.buffers.end(), same)) {
      last_.total = place_buffers(buffers);
      last_.buffers = std::move(buffers);
    }
    plan_.arena_bytes = last_.total;
    for (size_t b = 0; b < tensors; b++) where_[owner[b]] = {Location::kArena, 0, nullptr, last_.buffers[b].offset};
    for (size_t b : buffer_of) temporaries_.push_back(last_.buffers[b].offset);
  }
  // Steps that only copy results for the caller, where they are more than would stay in the caches.
  std::vector<bool> streamed_results() const {
    std::vector<bool> used(g_.tensors.size());  // by more than copies that write it
    std::vector<size_t> copies;
    for (size_t s = 0; s < list_.steps.size(); s++) {
      const auto& operands = step(s).operands;
      const size_t kept = operands.size() - (step(s).stream >= 0 ? 1 : 0);
      for (size_t i = 0; i < kept; i++)
        if (operands[i].kind == Operand::kTensor) used[root(operands[i].id)] = true;
      if (step(s).stream >= 0 && operands.back().kind == Operand::kTensor) copies.push_back(s);
    }
    auto result = [&](size_t s) { return root(step(s).operands.back().id); };
    std::erase_if(copies, [&](size_t s) { return used[result(s)] || where_[result(s)].kind != Location::kOutput; });
    std::set<size_t> results;
    for (size_t s : copies) results.insert(result(s));
    int64_t total = 0;
    for (size_t r : results) total += bytes(static_cast<TensorId>(r));
    std::vector<bool> streamed(list_.steps.size());
    if (total >= kStreamedBytes)
      for (size_t s : copies) streamed[s] = true;
    return streamed;
  }
  Location locate(TensorId t) const {
    Location l = where_[root(t)];
    const int64_t offset = list_.alias[static_cast<size_t>(t)].offset;
    if (l.kind == Location::kConstant)
      l.data += offset;
    else
      l.offset += offset;
    return l;
  }
  // A copy into the memory that its result has taken over.
  bool does_nothing(const Step& s) const {
    return s.in_place == 0 && std::string_view(s.kernel->name) == "ingot_copy" &&
           root(s.operands[0].id) == root(s.operands[1].id);
  }
  void plan_step(size_t s, bool streamed) {
    if (does_nothing(step(s))) return;
    PlannedStep planned;
    planned.node = list_.step_node[s];
    planned.operands.reserve(step(s).operands.size());
    for (const Operand& o : step(s).operands) {
      if (o.kind == Operand::kTensor)
        planned.operands.push_back(locate(o.id));
      else if (o.kind == Operand::kTemporary)
        planned.operands.push_back({Location::kArena, 0, nullptr, temporaries_[next_temporary_++]});
      else
        planned.operands.emplace_back();
    }
    planned.bound = list_.steps[s];
    if (streamed) {
      auto other = std::make_shared<BoundStep>(*planned.bound);
      other->step.params[static_cast<size_t>(other->step.stream)] = 1;
      planned.bound = std::move(other);
    }
    plan_.steps.push_back(std::move(planned));
  }
  void give_result(size_t i) {
    const TensorId t = targets_[i];
    const TensorInfo& info = infos_[static_cast<size_t>(t)];
    Plan::Result& result = plan_.results.emplace_back(info.dtype, numbers(*info.shape));
    const Location l = locate(t);
    const int output = static_cast<int>(i);
    if (l.kind == Location::kOutput && l.index == output && l.offset == 0) return;
    if (l.kind == Location::kInput && l.offset == 0 && is_tied(l.index, output))
      result.in_input = l.index;
    else if (bytes(t) > 0)
      plan_.copies.push_back({l, output, bytes(t)});
  }

  const Graph& g_;
  const std::vector<TensorInfo>& infos_;
  const std::vector<TensorId>& targets_;
  const StepList& list_;
  const std::vector<Tied>& tied_;
  PlacedBuffers& last_;
  Plan& plan_;
  std::vector<Life> life_;
  std::vector<Location> where_;
  std::vector<TensorId> merged_;      // in-place results share the memory of this root
  std::vector<int64_t> temporaries_;  // offset of each use, in order
  size_t next_temporary_ = 0;
};

// For steps that are not bound yet: specialised code for those that want it, and for those that have none yet what the
// native build needs.
void bind_kernels(const std::vector<std::shared_ptr<BoundStep>>& steps, KernelSource* source, const Target& target) {
  std::vector<const Step*> wanted;
  std::vector<BoundStep*> fresh, specialised;
  for (const auto& b : steps) {
    if (b->native) continue;
    fresh.push_back(b.get());
    if (!source || !is_specialised(b->step)) continue;
    wanted.push_back(&b->step);
    specialised.push_back(b.get());
  }
  if (!wanted.empty()) {
    const std::vector<KernelSlot*> slots = source->find(wanted);
    for (size_t i = 0; i < slots.size(); i++) specialised[i]->specialised = slots[i];
  }
  for (BoundStep* b : fresh) {
    if (b->step.expr && !(b->specialised && b->specialised->function.load())) {
      b->program = make_program(*b->step.expr, target);
      b->step.scratch = std::max(b->step.scratch, program_scratch_bytes(*b->program));
    }
    b->native = native(*b->step.kernel, target);
  }
}

}  // namespace

Plan make_plan(const Lowering& low, KernelSource* kernels, const std::vector<Tied>& tied, PlacedBuffers* last) {
  Plan plan;
  PlacedBuffers none;
  const StepList list(low);
  bind_kernels(list.steps, kernels, target_of(low.graph()));
  Placement(low, list, tied, last ? *last : none, plan).run();
  for (const PlannedStep& p : plan.steps) plan.scratch_bytes = std::max(plan.scratch_bytes, p.bound->step.scratch);
  return plan;
}

}  // namespace ingot
