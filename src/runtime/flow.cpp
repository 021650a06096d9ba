#include "runtime/flow.h"

#include "base/error.h"
#include "ops/host.h"

namespace ingot {

Flow::Flow(const std::shared_ptr<const Graph>& graph, const RegionOptions& options) : graph_(graph) {
  for (Part& p : cut(graph)) {
    RunPart part;
    part.node = p.node;
    part.inputs = std::move(p.inputs);
    part.outputs = std::move(p.outputs);
    if (p.region) {
      part.region = std::make_unique<Region>(p.region, options);
    } else {
      const Node& node = graph->nodes[p.node];
      for (TensorId t : node.inputs)
        if (t != kNoTensor) part.inputs.push_back(t);
      for (const auto& [attr, value] : node.attrs)
        if (const auto* body = std::get_if<GraphPtr>(&value))
          part.bodies.emplace(attr, std::make_unique<Flow>(*body, options));
    }
    parts_.push_back(std::move(part));
  }
  find_last_reads();
  auto add_constant = [&](TensorId t) {
    if (graph_->info(t).constant) constants_.push_back(t);
  };
  for (const RunPart& p : parts_)
    for (TensorId t : p.inputs) add_constant(t);
  for (TensorId t : graph_->outputs) add_constant(t);
}

void Flow::find_last_reads() {
  std::vector<bool> kept(graph_->tensors.size());
  for (TensorId t : graph_->outputs) kept[static_cast<size_t>(t)] = true;
  for (size_t i = parts_.size(); i-- > 0;)
    for (TensorId t : parts_[i].inputs) {
      if (kept[static_cast<size_t>(t)]) continue;
      kept[static_cast<size_t>(t)] = true;
      parts_[i].done.push_back(t);
    }
}

void Flow::prepare() {
  for (const RunPart& p : parts_) {
    if (p.region) p.region->prepare();
    for (const auto& [attr, body] : p.bodies) body->prepare();
  }
}

int64_t Flow::arena_bytes() const {
  int64_t total = 0;
  for (const RunPart& p : parts_) {
    if (p.region) total += p.region->arena_bytes();
    for (const auto& [attr, body] : p.bodies) total += body->arena_bytes();
  }
  return total;
}

std::vector<Value> Flow::run(std::vector<Value> inputs, StringPool& pool) {
  std::vector<Value> values(graph_->tensors.size());
  for (TensorId t : constants_) values[static_cast<size_t>(t)] = graph_->info(t).constant;
  for (size_t i = 0; i < inputs.size(); i++) values[static_cast<size_t>(graph_->inputs[i])] = std::move(inputs[i]);
  for (const RunPart& part : parts_) {
    if (part.region)
      run_region(part, values);
    else
      run_host(part, values, pool);
    for (TensorId t : part.done) values[static_cast<size_t>(t)] = {};
  }
  std::vector<Value> outputs;
  for (TensorId t : graph_->outputs) outputs.push_back(values[static_cast<size_t>(t)]);
  return outputs;
}

void Flow::run_region(const RunPart& part, std::vector<Value>& values) {
  std::vector<TensorView> views;
  for (TensorId t : part.inputs) {
    const Value& v = values[static_cast<size_t>(t)];
    if (!v.is_tensor()) invalid_input("'{}' has no value", graph_->tensor(t).name);
    views.push_back(view_of(v));
  }
  part.region->run(views, [&](size_t i, DType dtype, const std::vector<int64_t>& dims) -> void* {
    std::byte* data = nullptr;
    values[static_cast<size_t>(part.outputs[i])] = make_constant(dtype, dims, &data);
    return data;
  });
}

void Flow::run_host(const RunPart& part, std::vector<Value>& values, StringPool& pool) {
  const Node& node = graph_->nodes[part.node];
  std::vector<Value> inputs;
  for (TensorId t : node.inputs) inputs.push_back(t == kNoTensor ? Value() : values[static_cast<size_t>(t)]);
  const HostContext::RunBody body = [&](const std::string& attr, std::vector<Value> given) {
    const auto it = part.bodies.find(attr);
    if (it == part.bodies.end()) invalid_model("{}: has no graph '{}'", node.label(), attr);
    const size_t wanted = it->second->graph_->inputs.size();
    if (given.size() != wanted)
      invalid_model("{}: its graph '{}' takes {} inputs, not {}", node.label(), attr, wanted, given.size());
    return it->second->run(std::move(given), pool);
  };
  HostContext ctx(node, std::move(inputs), pool, body);
  try {
    OpRegistry::get().need(node).host(ctx);
  } catch (const Error& e) {
    throw e.message().starts_with(node.label()) ? e : e.at(node.label());
  }
  for (size_t i = 0; i < node.outputs.size(); i++)
    if (node.outputs[i] != kNoTensor) values[static_cast<size_t>(node.outputs[i])] = std::move(ctx.outputs[i]);
}

}  // namespace ingot
