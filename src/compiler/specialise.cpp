#include "compiler/specialise.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "planner/cut.h"
#include "planner/plan.h"

namespace ingot {
namespace {

using Assignment = std::map<std::string, int64_t>;
using InputDims = std::vector<std::vector<int64_t>>;

// Free dims of the inputs in order of appearance; those that stand first in an input are taken for batches.
struct FreeDims {
  std::vector<std::string> batch, other;
};

FreeDims free_dims(const Graph& g) {
  FreeDims out;
  auto add = [](std::vector<std::string>& list, const std::string& s) {
    if (std::find(list.begin(), list.end(), s) == list.end()) list.push_back(s);
  };
  for (TensorId t : g.inputs) {
    if (!g.info(t).shape) continue;
    const Shape& shape = *g.info(t).shape;
    for (size_t d = 0; d < shape.size(); d++)
      if (!shape[d].is_const()) add(d == 0 && shape.size() > 1 ? out.batch : out.other, shape[d].str());
  }
  std::erase_if(out.other, [&](const std::string& s) { return std::count(out.batch.begin(), out.batch.end(), s) > 0; });
  return out;
}

// Shapes to try, in groups: a group's samples differ in every free dim, once with batches above one and once with
// batches of one, which often makes other code. Models constrain their dims (multiples of 32, equal pairs, upper
// bounds), so the first group all of whose samples are accepted is used.
std::vector<std::vector<Assignment>> sample_groups(const FreeDims& dims) {
  std::vector<std::vector<Assignment>> groups;
  for (auto [first, second, apart] :
       {std::tuple{64, 96, 32}, {64, 96, 0}, {224, 320, 0}, {32, 48, 0}, {16, 24, 0}, {2, 3, 0}}) {
    std::vector<Assignment> group;
    for (bool single : {false, true})
      for (int which = 0; which < 2; which++) {
        Assignment a;
        for (const auto& s : dims.batch) a[s] = single ? 1 : 2 + which;
        int64_t step = 0;
        for (const auto& s : dims.other) a[s] = (which ? second : first) + 2 * apart * step++;
        group.push_back(std::move(a));
      }
    groups.push_back(std::move(group));
  }
  return groups;
}

std::optional<InputDims> input_dims(const Graph& g, const Assignment& a) {
  InputDims out;
  for (TensorId t : g.inputs) {
    if (!g.info(t).shape) return std::nullopt;
    std::vector<int64_t> dims;
    for (const Dim& d : *g.info(t).shape) dims.push_back(d.is_const() ? d.value() : a.at(d.str()));
    out.push_back(std::move(dims));
  }
  return out;
}

std::optional<Lowered> try_lower(const Graph& g, const Assignment& a) {
  auto dims = input_dims(g, a);
  if (!dims) return std::nullopt;
  try {
    return lower_graph(g, *dims, g.outputs);
  } catch (const Error&) {
    return std::nullopt;
  } catch (const DataNeeded&) {
    return std::nullopt;
  }
}

std::vector<Lowered> lower_samples(const Graph& g) {
  const FreeDims dims = free_dims(g);
  std::vector<Lowered> best;
  if (dims.batch.empty() && dims.other.empty()) {
    if (auto low = try_lower(g, {})) best.push_back(std::move(*low));
    return best;
  }
  for (const auto& group : sample_groups(dims)) {
    std::vector<Lowered> accepted;
    for (const auto& a : group)
      if (auto low = try_lower(g, a)) accepted.push_back(std::move(*low));
    if (accepted.size() > best.size()) best = std::move(accepted);
    if (best.size() == group.size()) break;
  }
  return best;
}

// The same step of the same node in the samples that give it the same structure.
struct StepKey {
  int node, ordinal;
  std::string kernel, expr;
  std::vector<int64_t> structure;
  auto operator<=>(const StepKey&) const = default;
};

}  // namespace

namespace {

std::vector<KernelRequest> choose_for_region(const Graph& g) {
  const std::vector<Lowered> samples = lower_samples(g);
  std::map<StepKey, std::vector<const Step*>> steps;
  for (const Lowered& low : samples) {
    int node = -1, ordinal = 0;
    for (size_t i = 0; i < low.steps.size(); i++) {
      const Step& s = low.steps[i];
      ordinal = low.step_node[i] == node ? ordinal + 1 : 0;
      node = low.step_node[i];
      if (!s.specialise) continue;
      StepKey key{node,
                  ordinal,
                  s.kernel->name,
                  s.expr ? s.expr->str() : "",
                  {s.params.begin(), s.params.begin() + static_cast<std::ptrdiff_t>(s.structure)}};
      steps[key].push_back(&s);
    }
  }
  std::vector<KernelRequest> out;
  for (const auto& [key, group] : steps) {
    if (group.size() == 1 && samples.size() > 1) continue;  // nothing tells its constants from its free dims
    KernelRequest r{key.kernel,          group[0]->expr,
                    group[0]->params,    std::vector<uint8_t>(group[0]->params.size(), 1),
                    group[0]->structure, &target_of(g)};
    for (const Step* s : group)
      for (size_t i = 0; i < r.params.size(); i++)
        if (s->params.size() != r.params.size() || s->params[i] != r.params[i]) r.known[i] = 0;
    for (size_t i = 0; i < r.params.size(); i++)
      if (!r.known[i]) r.params[i] = 0;
    out.push_back(std::move(r));
  }
  return out;
}

}  // namespace

std::vector<KernelRequest> choose_kernels(const std::shared_ptr<const Graph>& graph) {
  std::vector<KernelRequest> out;
  std::set<std::string> seen;
  auto add = [&](std::vector<KernelRequest> more) {
    for (KernelRequest& r : more)
      if (seen.insert(r.symbol()).second) out.push_back(std::move(r));
  };
  for (const Part& part : cut(graph)) {
    if (part.region) {
      add(choose_for_region(*part.region));
      continue;
    }
    for (const auto& [attr, value] : graph->nodes[part.node].attrs)
      if (const auto* body = std::get_if<GraphPtr>(&value)) add(choose_kernels(*body));
  }
  return out;
}

}  // namespace ingot
