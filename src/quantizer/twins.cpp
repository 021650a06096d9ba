#include "quantizer/twins.h"

#include <algorithm>
#include <unordered_map>

#include "quantizer/products.h"

namespace ingot {

Twins make_twins(const Graph& exact, const Selection& selection, const QuantizationFacts& facts) {
  Twins out;
  out.graph = deep_copy(exact);
  QuantizationFacts own = facts;
  own.nodes.clear();
  for (auto& [name, tensor] : own.tensors) tensor.everywhere = false;
  std::unordered_map<std::string, const Node*> nodes;
  for (const Node& n : exact.nodes) nodes.emplace(n.name, &n);
  for (size_t i = 0; i < selection.nodes.size(); i++) {
    Node twin = *nodes.at(selection.nodes[i].name);
    if (!is_product(twin)) continue;
    const TensorId result = twin.outputs[0];
    twin.name += "/twin";
    const std::string name = out.graph.fresh_name(exact.tensor(result).name + "/twin");
    twin.outputs = {out.graph.add_tensor(name, exact.info(result))};
    own.nodes[twin.name] = {selection.nodes[i].operands};
    out.nodes.push_back(i);
    out.exact.push_back(exact.tensor(result).name);
    out.rounded.push_back(name);
    out.graph.outputs.push_back(twin.outputs[0]);
    out.graph.nodes.push_back(std::move(twin));
  }
  quantize(out.graph, own);
  return out;
}

void each_pair(const Twins& twins, const Samples& samples, size_t limit, const ProgressFn& progress,
               const std::string& what, const std::function<void(size_t, const Constant&, const Constant&)>& visit) {
  std::vector<std::string> both = twins.exact;
  both.insert(both.end(), twins.rounded.begin(), twins.rounded.end());
  Runner runner(twins.graph, both);
  const size_t count = std::min(samples.count, limit), pairs = twins.exact.size();
  for (size_t s = 0; s < count; s++) {
    progress(what, s, count);
    const std::vector<Value> values = runner.run(samples.get(s));
    for (size_t i = 0; i < pairs; i++)
      if (values[i].is_tensor() && values[pairs + i].is_tensor())
        visit(i, values[i].tensor(), values[pairs + i].tensor());
  }
}

}  // namespace ingot
