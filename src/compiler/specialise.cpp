#include "compiler/specialise.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "planner/cut.h"
#include "planner/plan.h"

namespace ingot {
namespace {

using Sizes = std::map<std::string, int64_t>;  // by free dim

// Free dims of the inputs; those that stand first in an input are taken for batches.
struct FreeDims {
  std::set<std::string> batch, other;
};

FreeDims free_dims(const Graph& g) {
  FreeDims out;
  for (TensorId t : g.inputs) {
    if (!g.info(t).shape) continue;
    const Shape& shape = *g.info(t).shape;
    for (size_t d = 0; d < shape.size(); d++)
      if (!shape[d].is_const()) (d == 0 && shape.size() > 1 ? out.batch : out.other).insert(shape[d].str());
  }
  for (const auto& s : out.batch) out.other.erase(s);
  return out;
}

std::optional<Lowered> try_lower(const Graph& g, const Sizes& sizes) {
  std::vector<std::vector<int64_t>> inputs;
  for (TensorId t : g.inputs) {
    if (!g.info(t).shape) return std::nullopt;
    auto& dims = inputs.emplace_back();
    for (const Dim& d : *g.info(t).shape) dims.push_back(d.is_const() ? d.value() : sizes.at(d.str()));
  }
  try {
    return lower_graph(g, inputs, g.outputs);
  } catch (const Error&) {  // models constrain their dims: multiples of 32, equal pairs, upper bounds
    return std::nullopt;
  } catch (const DataNeeded&) {
    return std::nullopt;
  }
}

// Small, medium and large; those of the second row if the model takes none of the first.
constexpr int64_t kSizes[2][6] = {{1, 7, 32, 64, 224, 640}, {2, 3, 16, 48, 96, 320}};
constexpr int64_t kBatches[] = {1, 2, 16};

std::vector<Lowered> lower_for_sizes(const Graph& g) {
  const FreeDims dims = free_dims(g);
  std::vector<Lowered> out;
  for (const auto& sizes : kSizes) {
    for (int64_t size : sizes)
      for (int64_t batch : kBatches) {
        Sizes s;
        for (const auto& name : dims.other) s[name] = size;
        for (const auto& name : dims.batch) s[name] = batch;
        if (auto low = try_lower(g, s)) out.push_back(std::move(*low));
        if (dims.batch.empty()) break;
      }
    if (!out.empty() || (dims.batch.empty() && dims.other.empty())) break;
  }
  return out;
}

class Collector {
 public:
  void add(const std::shared_ptr<const Graph>& graph) {
    for (const Part& part : cut(graph)) {
      if (part.region) {
        for (const Lowered& low : lower_for_sizes(*part.region)) add_steps(low, target_of(*part.region));
        continue;
      }
      for (const auto& [attr, value] : graph->nodes[part.node].attrs)
        if (const auto* body = std::get_if<GraphPtr>(&value)) add(*body);
    }
  }
  std::vector<KernelRequest> requests;

 private:
  void add_steps(const Lowered& low, const Target& target) {
    for (const Step& s : low.steps)
      if (is_specialised(s) && seen_.insert(kernel_key(s)).second) requests.emplace_back(s, target);
  }
  std::set<std::string> seen_;
};

}  // namespace

std::vector<KernelRequest> foreseen_kernels(const std::shared_ptr<const Graph>& graph) {
  Collector collector;
  collector.add(graph);
  return std::move(collector.requests);
}

}  // namespace ingot
