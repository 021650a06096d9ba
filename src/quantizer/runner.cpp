#include "quantizer/runner.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "compiler/compiler.h"

namespace ingot {

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
  CompileOptions options;
  prepare_graph(*copy, options);
  options.opt_level = 0;  // native kernels: compiling takes longer than the samples do
  session_ = make_session(copy, options, {});
}

std::vector<Value> Runner::run(const std::vector<Value>& inputs) {
  std::vector<Value> made;
  if (session_) made = session_->run(inputs);
  std::vector<Value> out;
  out.reserve(input_.size());
  for (size_t i = 0; i < input_.size(); i++)
    out.push_back(input_[i] >= 0 ? inputs.at(static_cast<size_t>(input_[i])) : made[static_cast<size_t>(output_[i])]);
  return out;
}

}  // namespace ingot
