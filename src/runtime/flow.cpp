#include "runtime/flow.h"

#include <algorithm>

#include "base/error.h"
#include "base/stop.h"
#include "ops/host.h"
#include "runtime/output_memory.h"

namespace ingot {
Flow::Flow(const std::shared_ptr<const Graph>& graph, const RegionOptions& options) : Flow(graph, options, false, 0) {}

Flow::Flow(const std::shared_ptr<const Graph>& graph, const RegionOptions& options, bool is_body, size_t captured)
    : graph_(graph), captured_(captured) {
  for (Part& p : cut(graph, is_body)) {
    RunPart part;
    part.node = p.node;
    part.inputs = std::move(p.inputs);
    part.outputs = std::move(p.outputs);
    if (p.region) {
      part.region = std::make_unique<Region>(p.region, options);
    } else {
      const Node& node = graph->nodes[p.node];
      const auto captures = static_cast<size_t>(node.get_int("captures", 0));
      for (TensorId t : node.inputs)
        if (t != kNoTensor) part.inputs.push_back(t);
      for (const auto& [attr, value] : node.attrs)
        if (const auto* body = std::get_if<GraphPtr>(&value))
          part.bodies.emplace(attr, std::unique_ptr<Flow>(new Flow(*body, options, true, captures)));
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

Region* Flow::whole() const {
  const bool one = parts_.size() == 1 && parts_[0].inputs == graph_->inputs && parts_[0].outputs == graph_->outputs;
  return one ? parts_[0].region.get() : nullptr;
}

// Constants and captured values stay in a frame.
void Flow::find_last_reads() {
  std::vector<bool> kept(graph_->tensors.size());
  for (TensorId t : graph_->outputs) kept[static_cast<size_t>(t)] = true;
  for (size_t t = 0; t < kept.size(); t++)
    if (graph_->tensors[t].info.constant) kept[t] = true;
  for (size_t i = 1; i <= captured_; i++) kept[static_cast<size_t>(graph_->inputs[graph_->inputs.size() - i])] = true;
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

Flow::Frame Flow::new_frame(bool repeated) const {
  Frame f;
  f.repeated = repeated;
  f.values.resize(graph_->tensors.size());
  f.parts.resize(parts_.size());
  for (TensorId t : constants_) f.values[static_cast<size_t>(t)] = graph_->info(t).constant;
  return f;
}

std::vector<Value> Flow::run(std::vector<Value> inputs, StringPool& pool) {
  Frame frame = new_frame(false);
  return run(frame, std::move(inputs), pool);
}

std::vector<Value> Flow::run(Frame& frame, std::vector<Value> formal, StringPool& pool) {
  std::vector<Value>& values = frame.values;
  for (size_t i = 0; i < formal.size(); i++) values[static_cast<size_t>(graph_->inputs[i])] = std::move(formal[i]);
  check_stop();  // a loop may have nothing in its body
  for (size_t i = 0; i < parts_.size(); i++) {
    const RunPart& part = parts_[i];
    if (part.region)
      run_region(part, frame, frame.parts[i]);
    else
      run_host(part, frame, frame.parts[i], pool);
    for (TensorId t : part.done) values[static_cast<size_t>(t)] = {};
  }
  std::vector<Value> outputs;
  outputs.reserve(graph_->outputs.size());
  for (TensorId t : graph_->outputs) outputs.push_back(values[static_cast<size_t>(t)]);
  // Only the caller holds them now, and their memory serves again when he lets go.
  for (const RunPart& part : parts_) {
    for (TensorId t : part.outputs) values[static_cast<size_t>(t)] = {};
    if (!part.region)
      for (TensorId t : graph_->nodes[part.node].outputs)
        if (t != kNoTensor) values[static_cast<size_t>(t)] = {};
  }
  for (size_t i = 0; i < formal.size(); i++) values[static_cast<size_t>(graph_->inputs[i])] = {};
  return outputs;
}

void Flow::run_region(const RunPart& part, Frame& frame, PartFrame& mine) {
  std::vector<Value>& values = frame.values;
  mine.views.resize(part.inputs.size());
  for (size_t i = 0; i < part.inputs.size(); i++) {
    const Value& v = values[static_cast<size_t>(part.inputs[i])];
    if (!v.is_tensor()) invalid_input("'{}' has no value", graph_->tensor(part.inputs[i]).name);
    set_view(mine.views[i], v.tensor());
  }
  const OutputAllocator allocate = [&](size_t i, DType dtype, const std::vector<int64_t>& dims) -> void* {
    Value& out = values[static_cast<size_t>(part.outputs[i])];
    std::byte* data = nullptr;
    out = frame.repeated ? mine.given[i].make(dtype, dims, &data) : make_recycled(dtype, dims, &data);
    return data;
  };
  if (!frame.repeated) return part.region->run(mine.views, allocate);
  mine.given.resize(part.outputs.size());
  part.region->run(mine.views, allocate, mine.memo);
}

void Flow::run_host(const RunPart& part, Frame& frame, PartFrame& mine, StringPool& pool) {
  const Node& node = graph_->nodes[part.node];
  std::vector<Value> inputs;
  inputs.reserve(node.inputs.size());
  for (TensorId t : node.inputs) inputs.push_back(t == kNoTensor ? Value() : frame.values[static_cast<size_t>(t)]);
  // Captured values are put into the frame of a body before it first runs, and taken out when the node is done.
  const size_t own = own_inputs(node);
  auto body_frame = [&](const std::string& attr, const Flow& flow) -> Frame& {
    auto [it, fresh] = mine.bodies.try_emplace(attr);
    if (fresh) it->second = flow.new_frame(frame.repeated || !node.is("If"));
    return it->second;
  };
  auto set_captured = [&](const Flow& flow, Frame& f, const std::vector<Value>& all) {
    const std::vector<TensorId>& ids = flow.graph_->inputs;
    for (size_t i = own; i < node.inputs.size(); i++)
      f.values[static_cast<size_t>(ids[ids.size() - node.inputs.size() + i])] = all.empty() ? Value() : all[i];
  };
  std::vector<std::string> entered;
  const HostContext::RunBody body = [&](const std::string& attr, std::vector<Value> formal) {
    const auto it = part.bodies.find(attr);
    if (it == part.bodies.end()) invalid_model("{}: has no graph '{}'", node.label(), attr);
    Flow& flow = *it->second;
    Frame& f = body_frame(attr, flow);
    if (std::find(entered.begin(), entered.end(), attr) == entered.end()) {
      const size_t wanted = flow.graph_->inputs.size(), given = formal.size() + node.inputs.size() - own;
      if (given != wanted)
        invalid_model("{}: its graph '{}' takes {} inputs, not {}", node.label(), attr, wanted, given);
      set_captured(flow, f, inputs);
      entered.push_back(attr);
    }
    return flow.run(f, std::move(formal), pool);
  };
  HostContext ctx(node, inputs, pool, body);
  check_stop();
  try {
    OpRegistry::get().need(node).host(ctx);
  } catch (const Error& e) {
    if (is_stop(e)) throw;
    throw e.message().starts_with(node.label()) ? e : e.at(node.label());
  }
  for (const std::string& attr : entered) set_captured(*part.bodies.at(attr), mine.bodies.at(attr), {});
  for (size_t i = 0; i < node.outputs.size(); i++)
    if (node.outputs[i] != kNoTensor) frame.values[static_cast<size_t>(node.outputs[i])] = std::move(ctx.outputs[i]);
}

}  // namespace ingot
