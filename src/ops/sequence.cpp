// Sequences of tensors and optional values.
#include "ops/host.h"
#include "ops/host_tensors.h"

namespace ingot {
namespace {

void set_sequence(InferContext& ctx, size_t out, DType dtype) {
  ctx.out(out).dtype = dtype;
  ctx.out(out).form = Form::Sequence;
}
void infer_same_sequence(InferContext& ctx) { set_sequence(ctx, 0, ctx.dtype(0)); }
void infer_element(InferContext& ctx) { ctx.set_dtype(0, ctx.dtype(0)); }
void infer_length(InferContext& ctx) { ctx.set(0, DType::I64, {}); }
void infer_empty(InferContext& ctx) {
  const auto dtype = dtype_from_onnx(static_cast<int32_t>(ctx.node.get_int("dtype", 1)));
  ctx.require(dtype.has_value(), "attribute 'dtype' is no element type");
  set_sequence(ctx, 0, *dtype);
}

// A position among `size` items, or at their end if `end`.
int64_t position(HostContext& ctx, size_t operand, int64_t size, bool end) {
  const int64_t at = ctx.integer(operand), last = size - (end ? 0 : 1);
  if (at < -size || at > last) ctx.fail("position {} is outside [{}, {}]", at, -size, last);
  return at < 0 ? at + size : at;
}

void run_construct(HostContext& ctx) {
  std::vector<Value> items;
  for (size_t i = 0; i < ctx.input_count(); i++) items.emplace_back(ctx.tensor(i));
  ctx.set(0, Value(std::move(items)));
}

void run_empty(HostContext& ctx) { ctx.set(0, Value(std::vector<Value>{})); }

void run_at(HostContext& ctx) {
  const auto& items = ctx.sequence(0);
  ctx.set(0, items[static_cast<size_t>(position(ctx, 1, static_cast<int64_t>(items.size()), false))]);
}

void run_insert(HostContext& ctx) {
  std::vector<Value> items = ctx.sequence(0);
  const auto size = static_cast<int64_t>(items.size());
  const int64_t at = ctx.given(2) ? position(ctx, 2, size, true) : size;
  items.insert(items.begin() + at, ctx.tensor(1));
  ctx.set(0, Value(std::move(items)));
}

void run_erase(HostContext& ctx) {
  std::vector<Value> items = ctx.sequence(0);
  const auto size = static_cast<int64_t>(items.size());
  if (size == 0) ctx.fail("there is nothing to erase");
  items.erase(items.begin() + (ctx.given(1) ? position(ctx, 1, size, false) : size - 1));
  ctx.set(0, Value(std::move(items)));
}

void run_length(HostContext& ctx) {
  ctx.set(0, DType::I64, {}, std::vector<int64_t>{static_cast<int64_t>(ctx.sequence(0).size())});
}

void run_split(HostContext& ctx) {
  const ConstantPtr& x = ctx.tensor(0);
  const int64_t axis = ctx.axis(ctx.node.get_int("axis", 0), static_cast<int64_t>(x->dims.size()));
  const int64_t size = x->dims[static_cast<size_t>(axis)];
  std::vector<int64_t> lengths;
  if (!ctx.given(1)) {
    lengths.assign(static_cast<size_t>(size), 1);
  } else if (ctx.tensor(1)->dims.empty()) {
    const int64_t chunk = ctx.integer(1);
    if (chunk <= 0) ctx.fail("cannot split into pieces of {}", chunk);
    for (int64_t at = 0; at < size; at += chunk) lengths.push_back(std::min(chunk, size - at));
  } else {
    lengths = ctx.integers(1);
    int64_t total = 0;
    for (int64_t n : lengths) total += n;
    if (total != size) ctx.fail("the pieces have {} elements, the axis {}", total, size);
  }
  const bool drop = !ctx.given(1) && ctx.node.get_int("keepdims", 1) == 0;
  std::vector<Value> items;
  int64_t at = 0;
  for (int64_t n : lengths) {
    items.emplace_back(drop ? element(x, axis, at) : slice(*x, axis, at, n));
    at += n;
  }
  ctx.set(0, Value(std::move(items)));
}

void run_concat(HostContext& ctx) {
  std::vector<ConstantPtr> parts;
  for (const Value& v : ctx.sequence(0)) parts.push_back(v.tensor_ptr());
  if (parts.empty()) ctx.fail("the sequence is empty");
  const bool fresh = ctx.node.get_int("new_axis", 0) != 0;
  const int64_t axis =
      ctx.axis(ctx.node.need_int("axis"), static_cast<int64_t>(parts[0]->dims.size()) + (fresh ? 1 : 0));
  ctx.set(0, fresh ? stack(parts, axis) : join(parts, axis));
}

void infer_map(InferContext& ctx) {
  const GraphPtr body = ctx.node.get_graph("body");
  ctx.require(body != nullptr && body->outputs.size() == ctx.output_count(), "has no fitting graph 'body'");
  for (size_t i = 0; i < ctx.output_count(); i++) set_sequence(ctx, i, body->info(body->outputs[i]).dtype);
}

void run_map(HostContext& ctx) {
  const size_t own = own_inputs(ctx.node), count = ctx.sequence(0).size();
  std::vector<std::vector<Value>> results(ctx.outputs.size());
  for (size_t turn = 0; turn < count; turn++) {
    std::vector<Value> in;
    for (size_t i = 0; i < own; i++) {
      const bool each = ctx.in(i).is_sequence();
      if (each && ctx.sequence(i).size() != count)
        ctx.fail("operand {} has {} items, the first has {}", i, ctx.sequence(i).size(), count);
      in.push_back(each ? ctx.sequence(i)[turn] : ctx.in(i));
    }
    std::vector<Value> out = ctx.body("body", std::move(in));
    for (size_t i = 0; i < results.size(); i++) results[i].push_back(std::move(out[i]));
  }
  for (size_t i = 0; i < results.size(); i++) ctx.set(i, Value(std::move(results[i])));
}

// Optional without an operand is nothing; its type then is in the attribute, which only matters to the model's author.
void infer_optional(InferContext& ctx) {
  if (!ctx.has(0)) {
    ctx.out(0).form = Form::Optional;
    return;
  }
  ctx.out(0).dtype = ctx.dtype(0);
  ctx.out(0).form = ctx.in(0).form == Form::Sequence ? Form::OptionalSequence : Form::Optional;
}
void run_optional(HostContext& ctx) { ctx.set(0, ctx.given(0) ? ctx.in(0) : Value()); }

void infer_has(InferContext& ctx) { ctx.set(0, DType::Bool, {}); }
void run_has(HostContext& ctx) {
  const bool there = ctx.given(0) && !ctx.in(0).is_none();
  ctx.set(0, DType::Bool, {}, std::vector<uint8_t>{there});
}

void infer_get(InferContext& ctx) {
  const TensorInfo& x = ctx.in(0);
  ctx.out(0).dtype = x.dtype;
  ctx.out(0).form = x.form == Form::OptionalSequence || x.form == Form::Sequence ? Form::Sequence : Form::Tensor;
  if (x.form == Form::Tensor && x.shape) ctx.set_shape(0, *x.shape);
}
void run_get(HostContext& ctx) {
  if (ctx.in(0).is_none()) ctx.fail("the optional has no value");
  ctx.set(0, ctx.in(0));
}

}  // namespace

void register_sequence(OpRegistry& r) {
  r.add(host_op("SequenceConstruct", 1, -1, 1, infer_same_sequence, run_construct));
  r.add(host_op("SequenceEmpty", 0, 0, 1, infer_empty, run_empty));
  r.add(host_op("SequenceAt", 2, 2, 1, infer_element, run_at));
  r.add(host_op("SequenceInsert", 2, 3, 1, infer_same_sequence, run_insert));
  r.add(host_op("SequenceErase", 1, 2, 1, infer_same_sequence, run_erase));
  r.add(host_op("SequenceLength", 1, 1, 1, infer_length, run_length));
  r.add(host_op("SplitToSequence", 1, 2, 1, infer_same_sequence, run_split));
  r.add(host_op("ConcatFromSequence", 1, 1, 1, infer_element, run_concat));
  r.add(host_op("SequenceMap", 1, -1, -1, infer_map, run_map)).control_flow = true;
  r.add(host_op("Optional", 0, 1, 1, infer_optional, run_optional));
  r.add(host_op("OptionalHasElement", 0, 1, 1, infer_has, run_has));
  r.add(host_op("OptionalGetElement", 1, 1, 1, infer_get, run_get));
}

}  // namespace ingot
