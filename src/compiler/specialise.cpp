#include "compiler/specialise.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "base/error.h"
#include "base/stop.h"
#include "planner/cut.h"
#include "planner/lowering.h"

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

// Can the graph be lowered for these sizes?
bool lower_for(Lowering& low, const Sizes& sizes) {
  const Graph& g = low.graph();
  PlanInputs inputs;
  for (TensorId t : g.inputs) {
    if (!g.info(t).shape) return false;
    auto& dims = inputs.emplace_back().dims;
    for (const Dim& d : *g.info(t).shape) dims.push_back(d.is_const() ? d.value() : sizes.at(d.str()));
  }
  try {
    low.update(inputs);
    return true;
  } catch (const Error& e) {  // models constrain their dims: multiples of 32, equal pairs, upper bounds
    if (is_stop(e)) throw;
    return false;
  } catch (const DataNeeded&) {
    return false;
  }
}

// Small, medium and large; those of the second row if the model takes none of the first.
constexpr int64_t kSizes[2][6] = {{1, 7, 32, 64, 224, 640}, {2, 3, 16, 48, 96, 320}};
constexpr int64_t kBatches[] = {1, 2, 16};

// Calls `look` for each of them that the graph takes.
void lower_for_sizes(const Graph& g, const std::function<void(const Lowering&)>& look) {
  const FreeDims dims = free_dims(g);
  Lowering low(g, g.outputs);
  bool found = false;
  for (const auto& sizes : kSizes) {
    for (int64_t size : sizes)
      for (int64_t batch : kBatches) {
        Sizes s;
        for (const auto& name : dims.other) s[name] = size;
        for (const auto& name : dims.batch) s[name] = batch;
        if (lower_for(low, s)) {
          look(low);
          found = true;
        }
        if (dims.batch.empty()) break;
      }
    if (found || (dims.batch.empty() && dims.other.empty())) break;
  }
}

class Collector {
 public:
  void add(const std::shared_ptr<const Graph>& graph) {
    for (const Part& part : cut(graph)) {
      if (part.region) {
        lower_for_sizes(*part.region, [&](const Lowering& low) { add_steps(low); });
        continue;
      }
      for (const auto& [attr, value] : graph->nodes[part.node].attrs)
        if (const auto* body = std::get_if<GraphPtr>(&value)) add(*body);
    }
  }
  std::vector<KernelRequest> requests;

 private:
  void add_steps(const Lowering& low) {
    for (const auto& node : low.nodes()) {
      if (!node) continue;
      for (const BoundStep& b : node->steps)
        if (is_specialised(b.step) && seen_.insert(kernel_key(b.step)).second)
          requests.emplace_back(b.step, target_of(low.graph()));
    }
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
