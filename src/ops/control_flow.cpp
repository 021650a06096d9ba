// If, Loop and Scan. Their graphs stand in attributes; what these read from outside are the node's last operands.
#include <cstring>
#include <limits>

#include "ops/host.h"
#include "ops/host_tensors.h"

namespace ingot {
namespace {

const Graph& body_of(const Node& node, const char* attr) {
  const GraphPtr body = node.get_graph(attr);
  if (!body) invalid_model("{}: has no graph '{}'", node.label(), attr);
  return *body;
}

const TensorInfo& result_of(const Graph& body, size_t i) { return body.info(body.outputs[i]); }

// Dims that are the same number in both; names inside a subgraph mean nothing outside.
std::optional<Shape> common_shape(const std::optional<Shape>& a, const std::optional<Shape>& b) {
  if (!a || !b || a->size() != b->size()) return std::nullopt;
  Shape out;
  for (size_t i = 0; i < a->size(); i++)
    out.push_back((*a)[i].is_const() && (*a)[i] == (*b)[i] ? (*a)[i] : Dim::unknown());
  return out;
}

void set_type(InferContext& ctx, size_t out, const TensorInfo& info) {
  ctx.out(out).dtype = info.dtype;
  ctx.out(out).form = info.form;
}

void infer_if(InferContext& ctx) {
  const Graph &yes = body_of(ctx.node, "then_branch"), &no = body_of(ctx.node, "else_branch");
  ctx.require(yes.outputs.size() == ctx.output_count() && no.outputs.size() == ctx.output_count(),
              "gives {} results, its branches give {} and {}", ctx.output_count(), yes.outputs.size(),
              no.outputs.size());
  for (size_t i = 0; i < ctx.output_count(); i++) {
    const TensorInfo &a = result_of(yes, i), &b = result_of(no, i);
    set_type(ctx, i, a.dtype == DType::Undefined ? b : a);
    ctx.require(a.dtype == b.dtype || a.dtype == DType::Undefined || b.dtype == DType::Undefined,
                "result {} is {} in one branch and {} in the other", i, name(a.dtype), name(b.dtype));
    if (a.form == Form::Tensor && b.form == Form::Tensor) ctx.out(i).shape = common_shape(a.shape, b.shape);
  }
}

void run_if(HostContext& ctx) {
  std::vector<Value> results = ctx.body(ctx.integer(0) ? "then_branch" : "else_branch", {});
  for (size_t i = 0; i < results.size(); i++) ctx.set(i, std::move(results[i]));
}

size_t loop_states(const Node& node) { return own_inputs(node) > 2 ? own_inputs(node) - 2 : 0; }

void infer_loop(InferContext& ctx) {
  const Graph& body = body_of(ctx.node, "body");
  const size_t states = loop_states(ctx.node);
  ctx.require(own_inputs(ctx.node) >= 2, "needs a trip count and a condition, which may be empty");
  ctx.require(body.outputs.size() == ctx.output_count() + 1 && ctx.output_count() >= states,
              "carries {} values and gives {} results, its body gives {}", states, ctx.output_count(),
              body.outputs.size());
  for (size_t i = 0; i < ctx.output_count(); i++) {
    const TensorInfo& made = result_of(body, i + 1);
    set_type(ctx, i, made);
    if (i < states) {
      if (made.dtype == DType::Undefined) set_type(ctx, i, ctx.in(i + 2));
      if (made.form == Form::Tensor) ctx.out(i).shape = common_shape(made.shape, ctx.in(i + 2).shape);
    } else if (made.shape) {
      ctx.out(i).shape = common_shape(made.shape, made.shape);
      ctx.out(i).shape->insert(ctx.out(i).shape->begin(), Dim::unknown());
    }
  }
}

// Adds the results of a turn from the first collected one on.
void collect(HostContext& ctx, const std::vector<Value>& results, size_t first, std::vector<Stacked>& collected) {
  for (size_t i = 0; i < collected.size(); i++) {
    if (!results[first + i].is_tensor()) ctx.fail("result {} of its body is collected, and no tensor", first + i);
    collected[i].add(results[first + i].tensor());
  }
}

bool goes_on(HostContext& ctx, const Value& condition) {
  if (!condition.is_tensor() || condition.tensor().elements() != 1) ctx.fail("its body's condition is not one value");
  return integer_elements(condition.tensor())[0] != 0;
}

void run_loop(HostContext& ctx) {
  const Graph& body = body_of(ctx.node, "body");
  const size_t states = loop_states(ctx.node);
  const bool counted = ctx.given(0) && !ctx.in(0).is_none();
  const int64_t turns = counted ? ctx.integer(0) : std::numeric_limits<int64_t>::max();
  bool go = !ctx.given(1) || ctx.in(1).is_none() || ctx.integer(1) != 0;
  std::vector<Value> state;
  for (size_t i = 0; i < states; i++) state.push_back(ctx.in(i + 2));
  std::vector<Stacked> collected(body.outputs.size() - states - 1, Stacked(0, false, turns));
  Recycled numbers;
  const ConstantPtr yes = make_constant(DType::Bool, {}, std::vector<uint8_t>{1});
  for (int64_t turn = 0; turn < turns && go; turn++) {
    std::byte* number = nullptr;
    std::vector<Value> in;
    in.reserve(states + 2);
    in.push_back(numbers.make(DType::I64, {}, &number));
    std::memcpy(number, &turn, sizeof turn);
    in.push_back(yes);
    for (Value& s : state) in.push_back(std::move(s));
    std::vector<Value> out = ctx.body("body", std::move(in));
    go = goes_on(ctx, out[0]);
    collect(ctx, out, states + 1, collected);
    for (size_t i = 0; i < states; i++) state[i] = std::move(out[i + 1]);
  }
  for (size_t i = 0; i < states; i++) ctx.set(i, std::move(state[i]));
  for (size_t i = 0; i < collected.size(); i++)
    ctx.set(states + i, collected[i].result(result_of(body, states + 1 + i)));
}

// How a Scan walks: operands [0, states) are carried, the others are cut along an axis.
struct ScanShape {
  size_t states, scanned;
  std::vector<int64_t> in_axes, in_directions, out_axes, out_directions;

  explicit ScanShape(const Node& node) {
    const auto own = static_cast<int64_t>(own_inputs(node));
    const int64_t count = node.need_int("num_scan_inputs");
    if (count < 1 || count > own) invalid_model("{}: num_scan_inputs is {} with {} operands", node.label(), count, own);
    scanned = static_cast<size_t>(count);
    states = static_cast<size_t>(own - count);
    const size_t results = node.outputs.size() >= states ? node.outputs.size() - states : 0;
    auto list = [&](const char* attr, size_t size) {
      std::vector<int64_t> v = node.get_ints(attr);
      if (v.empty()) v.resize(size, 0);
      if (v.size() != size) invalid_model("{}: {} has {} entries, {} are needed", node.label(), attr, v.size(), size);
      return v;
    };
    in_axes = list("scan_input_axes", scanned);
    in_directions = list("scan_input_directions", scanned);
    out_axes = list("scan_output_axes", results);
    out_directions = list("scan_output_directions", results);
  }
};

void infer_scan(InferContext& ctx) {
  const Graph& body = body_of(ctx.node, "body");
  const ScanShape s(ctx.node);
  ctx.require(body.outputs.size() == ctx.output_count() && ctx.output_count() >= s.states,
              "carries {} values and gives {} results, its body gives {}", s.states, ctx.output_count(),
              body.outputs.size());
  for (size_t i = 0; i < ctx.output_count(); i++) {
    const TensorInfo& made = result_of(body, i);
    set_type(ctx, i, made);
    if (i < s.states) {
      ctx.out(i).shape = ctx.in(i).shape;
      if (made.dtype == DType::Undefined) set_type(ctx, i, ctx.in(i));
    } else if (made.shape) {
      Shape shape = *common_shape(made.shape, made.shape);
      const auto rank = static_cast<int64_t>(shape.size()) + 1;
      shape.insert(shape.begin() + ctx.axis(s.out_axes[i - s.states], rank), Dim::unknown());
      ctx.out(i).shape = shape;
    }
  }
}

void run_scan(HostContext& ctx) {
  const Graph& body = body_of(ctx.node, "body");
  const ScanShape s(ctx.node);
  std::vector<Value> state;
  for (size_t i = 0; i < s.states; i++) state.push_back(ctx.in(i));
  int64_t turns = -1;
  std::vector<int64_t> axes;
  for (size_t i = 0; i < s.scanned; i++) {
    const Constant& x = *ctx.tensor(s.states + i);
    axes.push_back(ctx.axis(s.in_axes[i], static_cast<int64_t>(x.dims.size())));
    const int64_t length = x.dims[static_cast<size_t>(axes[i])];
    if (turns >= 0 && length != turns) ctx.fail("its operands have {} and {} elements to scan", turns, length);
    turns = length;
  }
  std::vector<Stacked> collected;
  for (size_t i = 0; i < s.out_axes.size(); i++) collected.emplace_back(s.out_axes[i], s.out_directions[i] != 0, turns);
  for (int64_t turn = 0; turn < turns; turn++) {
    std::vector<Value> in;
    in.reserve(s.states + s.scanned);
    for (Value& v : state) in.push_back(std::move(v));
    for (size_t i = 0; i < s.scanned; i++)
      in.push_back(element(ctx.tensor(s.states + i), axes[i], s.in_directions[i] ? turns - 1 - turn : turn));
    std::vector<Value> out = ctx.body("body", std::move(in));
    collect(ctx, out, s.states, collected);
    for (size_t i = 0; i < s.states; i++) state[i] = std::move(out[i]);
  }
  for (size_t i = 0; i < s.states; i++) ctx.set(i, std::move(state[i]));
  for (size_t i = 0; i < collected.size(); i++)
    ctx.set(s.states + i, collected[i].result(result_of(body, s.states + i)));
}

}  // namespace

void register_control_flow(OpRegistry& r) {
  r.add(host_op("If", 1, -1, -1, infer_if, run_if)).control_flow = true;
  r.add(host_op("Loop", 0, -1, -1, infer_loop, run_loop)).control_flow = true;
  r.add(host_op("Scan", 1, -1, -1, infer_scan, run_scan)).control_flow = true;
}

}  // namespace ingot
