// The contexts that infer and lower see, and the driver that runs infer on one node.
#include <algorithm>

#include "kernels/number.h"
#include "ops/op.h"

namespace ingot {
namespace {

template <class T>
void append(const Constant& c, std::vector<Dim>& out) {
  for (T v : c.as<T>()) out.emplace_back(static_cast<int64_t>(v));
}

std::optional<std::vector<Dim>> constant_values(const Constant& c) {
  if (c.elements() > static_cast<int64_t>(kMaxValues)) return std::nullopt;
  std::vector<Dim> out;
  switch (c.dtype) {
    case DType::I64:
      append<int64_t>(c, out);
      break;
    case DType::I32:
      append<int32_t>(c, out);
      break;
    case DType::I16:
      append<int16_t>(c, out);
      break;
    case DType::I8:
      append<int8_t>(c, out);
      break;
    case DType::U8:
    case DType::Bool:
      append<uint8_t>(c, out);
      break;
    case DType::U16:
      append<uint16_t>(c, out);
      break;
    case DType::U32:
      append<uint32_t>(c, out);
      break;
    case DType::U64:
      append<uint64_t>(c, out);
      break;
    default:
      return std::nullopt;
  }
  return out;
}

std::optional<std::vector<Dim>> values_of(const TensorInfo& info) {
  if (info.values) return info.values;
  if (info.constant) return constant_values(*info.constant);
  return std::nullopt;
}

}  // namespace

InferContext::InferContext(const Node& node, std::vector<const TensorInfo*> inputs, std::vector<TensorInfo> outputs,
                           bool at_run_time)
    : node(node), inputs_(std::move(inputs)), outputs_(std::move(outputs)), at_run_time_(at_run_time) {}

const TensorInfo& InferContext::in(size_t i) const {
  if (!has(i)) fail("operand {} is missing", i);
  return *inputs_[i];
}

const Shape& InferContext::shape(size_t i) const {
  const TensorInfo& info = in(i);
  if (!info.shape) throw RankUnknown{};
  return *info.shape;
}

std::optional<std::vector<Dim>> InferContext::known_values(size_t i) const { return values_of(in(i)); }

std::optional<std::vector<Dim>> InferContext::values(size_t i) const {
  auto v = values_of(in(i));
  if (!v && at_run_time_) throw ValuesNeeded{i};
  return v;
}

std::optional<double> InferContext::scalar(size_t i) const {
  const TensorInfo& info = in(i);
  if (info.constant && info.constant->elements() == 1) {
    if (info.dtype == DType::F32) return info.constant->as<float>()[0];
    if (info.dtype == DType::F64) return info.constant->as<double>()[0];
    if (info.dtype == DType::F16) return kernel::widen(info.constant->as<kernel::F16>()[0]);
    if (info.dtype == DType::BF16) return kernel::widen(info.constant->as<kernel::BF16>()[0]);
  }
  auto v = values_of(info);
  if (v && v->size() == 1 && (*v)[0].is_const()) return static_cast<double>((*v)[0].value());
  return std::nullopt;
}

int64_t InferContext::axis(int64_t value, int64_t rank) const {
  if (value < -rank || value >= rank) fail("axis {} is outside [{}, {})", value, -rank, rank);
  return value < 0 ? value + rank : value;
}

void InferContext::set_dtype(size_t out, DType dtype) {
  if (out < outputs_.size()) outputs_[out].dtype = dtype;
}
void InferContext::set_shape(size_t out, Shape shape) {
  if (out >= outputs_.size()) return;
  for (const Dim& d : shape)
    if (d.is_const() && d.value() < 0) fail("result {} would have a negative size: {}", out, str(shape));
  outputs_[out].shape = std::move(shape);
}
void InferContext::set(size_t out, DType dtype, Shape shape) {
  set_dtype(out, dtype);
  set_shape(out, std::move(shape));
}
void InferContext::set_values(size_t out, std::vector<Dim> values) {
  if (out >= outputs_.size() || values.size() > kMaxValues) return;
  // An element nobody knows makes the whole useless at run time and misleading in the compiler.
  if (at_run_time_ && std::any_of(values.begin(), values.end(), [](const Dim& d) { return !d.is_const(); })) return;
  outputs_[out].values = std::move(values);
}

Shape broadcast(const InferContext& ctx, const Shape& a, const Shape& b) {
  Shape out(std::max(a.size(), b.size()));
  for (size_t i = 0; i < out.size(); i++) {
    const Dim x = i < a.size() ? a[a.size() - 1 - i] : Dim(1), y = i < b.size() ? b[b.size() - 1 - i] : Dim(1);
    Dim& r = out[out.size() - 1 - i];
    if (x.is(1) || x == y)
      r = y;
    else if (y.is(1))
      r = x;
    else if (x.is_const() && y.is_const())
      ctx.fail("shapes {} and {} do not broadcast: {} against {}", str(a), str(b), x.str(), y.str());
    else if (x.is_const())
      r = x;  // a symbol against a number above one can only be that number or 1
    else if (y.is_const())
      r = y;
    else
      r = is_min_with(x, y) ? y : is_min_with(y, x) ? x : Dim::unknown();  // min(c, s) fits s only where it is s
  }
  return out;
}

const TensorInfo& LowerContext::in(size_t i) const {
  if (!has(i)) ingot::fail(ErrorKind::InvalidModel, "{}: operand {} is missing", node.label(), i);
  return *inputs_[i];
}

std::vector<int64_t> LowerContext::values(size_t i) const {
  auto v = values_of(in(i));
  if (!v) ingot::fail(ErrorKind::Internal, "{}: the elements of operand {} are not known", node.label(), i);
  std::vector<int64_t> out;
  for (const Dim& d : *v) out.push_back(d.value());
  return out;
}

std::vector<TensorInfo> infer_node(const Graph& graph, const Node& node, const std::vector<TensorInfo>& known,
                                   bool at_run_time) {
  const OpDef& def = OpRegistry::get().need(node);
  const auto n_in = static_cast<int>(node.inputs.size()), n_out = static_cast<int>(node.outputs.size());
  if (n_in < def.min_inputs || (def.max_inputs >= 0 && n_in > def.max_inputs))
    invalid_model("{}: has {} operands, takes {} to {}", node.label(), n_in, def.min_inputs, def.max_inputs);
  if (n_out < def.min_outputs || (def.max_outputs >= 0 && n_out > def.max_outputs))
    invalid_model("{}: has {} results, gives {} to {}", node.label(), n_out, def.min_outputs, def.max_outputs);

  for (int i = 0; i < def.min_inputs; i++)
    if (!node.has_input(static_cast<size_t>(i))) invalid_model("{}: operand {} is missing", node.label(), i);

  std::vector<const TensorInfo*> inputs;
  for (TensorId t : node.inputs) inputs.push_back(t == kNoTensor ? nullptr : &known[static_cast<size_t>(t)]);
  InferContext ctx(node, std::move(inputs), std::vector<TensorInfo>(node.outputs.size()), at_run_time);
  try {
    def.infer(ctx);
  } catch (const RankUnknown&) {
    if (at_run_time) fail(ErrorKind::Internal, "{}: a rank is not known at run time", node.label());
  }
  // Unknown dims get a name, so that equal sizes downstream are seen to be equal.
  for (size_t i = 0; i < node.outputs.size(); i++) {
    TensorInfo& out = ctx.out(i);
    if (node.outputs[i] == kNoTensor || !out.shape) continue;
    for (size_t d = 0; d < out.shape->size(); d++)
      if ((*out.shape)[d].is_unknown())
        (*out.shape)[d] = Dim::symbol("?" + graph.tensor(node.outputs[i]).name + "." + std::to_string(d));
    if (out.values)
      for (Dim& v : *out.values)
        if (v.is_unknown()) {
          out.values.reset();
          break;
        }
  }
  return ctx.outputs();
}

}  // namespace ingot
