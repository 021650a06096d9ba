#include "runtime/evaluate.h"

#include "base/error.h"
#include "ops/op.h"
#include "planner/cut.h"
#include "runtime/session.h"

namespace ingot {

bool evaluate(const Graph& g, const Node& node, std::vector<ConstantPtr>& results, int64_t max_bytes) {
  if (is_host(g, node)) return false;
  // The node alone, as a graph without inputs.
  auto alone = std::make_shared<Graph>();
  Node copy = node;
  for (TensorId& t : copy.inputs) {
    if (t == kNoTensor) continue;
    const Tensor& from = g.tensor(t);
    ConstantPtr c = from.info.constant;
    if (!c || c->dtype == DType::String) return false;
    t = alone->add_constant("in" + std::to_string(alone->tensors.size()), c);
  }
  for (TensorId& t : copy.outputs) {
    if (t == kNoTensor) continue;
    t = alone->add_tensor("out" + std::to_string(alone->tensors.size()));
    alone->outputs.push_back(t);
  }
  alone->nodes.push_back(std::move(copy));

  std::vector<TensorInfo> infos;
  for (const Tensor& t : alone->tensors) infos.push_back(t.info);
  std::vector<TensorInfo> outs;
  try {
    outs = infer_node(*alone, alone->nodes[0], infos, true);
  } catch (const ValuesNeeded&) {
    return false;
  }
  int64_t total = 0;
  for (size_t i = 0; i < outs.size(); i++) {
    if (alone->nodes[0].outputs[i] == kNoTensor) continue;
    if (!outs[i].shape || !is_const(*outs[i].shape)) return false;
    total += byte_size(outs[i].dtype, product(*outs[i].shape).value());
    if (total > max_bytes) return false;
  }

  std::vector<ConstantPtr> made;
  SessionOptions options;
  options.threads = 1;
  Session session(alone, nullptr, options);
  session.run({}, [&](size_t, DType dtype, const std::vector<int64_t>& dims) -> void* {
    std::byte* data = nullptr;
    made.push_back(make_constant(dtype, dims, &data));
    return data;
  });
  results.clear();
  size_t next = 0;
  for (TensorId t : node.outputs) results.push_back(t == kNoTensor ? nullptr : made[next++]);
  return true;
}

}  // namespace ingot
