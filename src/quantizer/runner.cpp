#include "quantizer/runner.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "compiler/compiler.h"
#include "expansions/expand.h"

namespace ingot {

Graph deep_copy(const Graph& graph) {
  Graph copy = graph;
  for (Node& n : copy.nodes)
    for (auto& [key, value] : n.attrs)
      if (auto* body = std::get_if<GraphPtr>(&value)) *body = std::make_shared<Graph>(deep_copy(**body));
  return copy;
}

Runner::Runner(const Graph& graph, const std::vector<std::string>& tensors) {
  auto copy = std::make_shared<Graph>(deep_copy(graph));
  std::unordered_map<std::string, TensorId> ids;
  for (size_t i = 0; i < copy->tensors.size(); i++) ids.emplace(copy->tensors[i].name, static_cast<TensorId>(i));
  copy->outputs.clear();
  for (const std::string& name : tensors) {
    auto it = ids.find(name);
    if (it == ids.end()) invalid_input("there is no tensor '{}' in the graph", name);
    const auto in = std::find(copy->inputs.begin(), copy->inputs.end(), it->second);
    const auto out = std::find(copy->outputs.begin(), copy->outputs.end(), it->second);
    input_.push_back(in == copy->inputs.end() ? -1 : static_cast<int>(in - copy->inputs.begin()));
    output_.push_back(input_.back() >= 0 ? -1 : static_cast<int>(out - copy->outputs.begin()));
    if (input_.back() < 0 && out == copy->outputs.end()) copy->outputs.push_back(it->second);
  }
  if (copy->outputs.empty()) return;
  remove_dead(*copy);
  expand(*copy);
  const CompileOptions options;
  optimise(*copy, options);
  session_ = make_session(copy, options, {});
}

std::vector<Value> Runner::run(const std::vector<Value>& inputs) {
  std::vector<Value> made;
  if (session_) made = session_->run(inputs);
  std::vector<Value> out;
  for (size_t i = 0; i < input_.size(); i++)
    out.push_back(input_[i] >= 0 ? inputs.at(static_cast<size_t>(input_[i])) : made[static_cast<size_t>(output_[i])]);
  return out;
}

void infer_types(Graph& graph) {
  Graph copy = deep_copy(graph);
  expand(copy);
  std::unordered_map<std::string, TensorInfo*> known;
  for (Tensor& t : copy.tensors) known.emplace(t.name, &t.info);
  for (Tensor& t : graph.tensors)
    if (auto it = known.find(t.name); it != known.end() && !t.info.constant) t.info = *it->second;
}

}  // namespace ingot
