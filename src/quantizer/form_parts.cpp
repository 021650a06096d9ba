#include "quantizer/form_parts.h"

#include <algorithm>
#include <cmath>

#include "passes/constants.h"

namespace ingot {
namespace {

double element(const Constant& c, size_t i) {
  switch (c.dtype) {
    case DType::U8:
      return c.as<uint8_t>()[i];
    case DType::I8:
      return c.as<int8_t>()[i];
    case DType::I32:
      return c.as<int32_t>()[i];
    default:
      return c.as<float>()[i];
  }
}

bool same_value(const Editor& e, TensorId a, TensorId b) {
  if (a == b) return true;
  auto zero = [&](TensorId t) {
    if (t == kNoTensor) return true;
    const ConstantPtr& c = e.info(t).constant;
    return c && std::all_of(c->bytes.begin(), c->bytes.end(), [](std::byte x) { return x == std::byte{0}; });
  };
  if (a == kNoTensor || b == kNoTensor) return zero(a) && zero(b);
  const ConstantPtr &x = e.info(a).constant, &y = e.info(b).constant;
  return x && y && x->dtype == y->dtype && x->elements() == y->elements() &&
         std::equal(x->bytes.begin(), x->bytes.end(), y->bytes.begin(), y->bytes.end());
}

// Numbers for each row of something of that rank: [..., 1].
bool is_column(const Editor& e, TensorId t, size_t rank) {
  const std::optional<Shape>& shape = e.info(t).shape;
  return shape && shape->size() == rank && rank > 1 && shape->back().is(1);
}

// The integers that t is the Cast of.
TensorId cast_from_integers(const Editor& e, TensorId t) {
  const Node* cast = e.maker(t, "Cast");
  if (!cast || e.info(t).dtype != DType::F32 || !is_integer(e.info(cast->inputs[0]).dtype)) return kNoTensor;
  return cast->inputs[0];
}

// real = (Cast(q) - Cast(z)) * s; scale and zero are columns.
std::optional<Quantized> explicit_rows(const Editor& e, TensorId t) {
  const Node* mul = e.maker(t, "Mul");
  if (!mul || !e.info(t).shape) return std::nullopt;
  const size_t rank = e.info(t).shape->size();
  for (size_t i : {0, 1}) {
    const TensorId scale = mul->inputs[1 - i];
    if (!is_column(e, scale, rank) || e.info(scale).dtype != DType::F32) continue;
    TensorId real = mul->inputs[i], zero = kNoTensor;
    if (const Node* sub = e.maker(real, "Sub")) {
      zero = cast_from_integers(e, sub->inputs[1]);
      if (zero == kNoTensor || !is_column(e, zero, rank)) continue;
      real = sub->inputs[0];
    }
    const TensorId q = cast_from_integers(e, real);
    if (q != kNoTensor && is_byte(e.info(q).dtype)) return Quantized{q, scale, zero, 0};
  }
  return std::nullopt;
}

// The DequantizeLinear of t, where its scales are one for each row.
const Node* row_dequantizer(const Editor& e, TensorId t) {
  const Node* n = e.maker(t, "DequantizeLinear");
  if (!n || e.info(t).dtype != DType::F32 || !e.info(t).shape || !is_byte(e.info(n->inputs[0]).dtype)) return nullptr;
  const auto rank = static_cast<int64_t>(e.info(t).shape->size());
  int64_t axis = n->get_int("axis", 1);
  if (axis < 0) axis += rank;
  const std::optional<Shape>& scales = e.info(n->inputs[1]).shape;
  if (n->get_int("block_size", 0) != 0)
    return axis == rank - 1 && is_column(e, n->inputs[1], scales ? scales->size() : 0) ? n : nullptr;
  return rank == 2 && axis == 0 && scales && scales->size() == 1 ? n : nullptr;
}

}  // namespace

bool is_one(const TensorInfo& info) {
  return info.shape && std::all_of(info.shape->begin(), info.shape->end(), [](const Dim& d) { return d.is(1); });
}

std::optional<Quantized> dequantized_from(const Editor& e, TensorId t) {
  if (t == kNoTensor) return std::nullopt;
  const Node* n = e.maker(t, "DequantizeLinear");
  if (!n || n->get_int("block_size", 0) != 0 || e.info(t).dtype != DType::F32) return std::nullopt;
  Quantized out{n->inputs[0], n->inputs[1], n->has_input(2) ? n->inputs[2] : kNoTensor, n->get_int("axis", 1)};
  const DType type = e.info(out.q).dtype;
  if (type != DType::U8 && type != DType::I8 && type != DType::I32) return std::nullopt;
  if (e.info(out.scale).dtype != DType::F32 || !e.info(out.scale).shape) return std::nullopt;
  const std::optional<Shape>& shape = e.info(out.q).shape;
  if (out.axis < 0 && shape) out.axis += static_cast<int64_t>(shape->size());
  return out;
}

std::optional<Quantized> dequantized_rows(Editor& e, TensorId t) {
  if (t == kNoTensor) return std::nullopt;
  if (const auto rows = explicit_rows(e, t)) return rows;
  const Node* found = row_dequantizer(e, t);
  if (!found) return std::nullopt;
  const Node n = *found;
  auto column = [&](TensorId v) {
    if (e.info(v).shape->size() != 1) return v;
    const TensorId axes = e.add_ints(n.name + "_axes", {1});
    return e.emit(n, "Unsqueeze", {v, axes}, {}, e.info(v).dtype, Shape{e.info(v).shape->at(0), Dim(1)});
  };
  return Quantized{n.inputs[0], column(n.inputs[1]), n.has_input(2) ? column(n.inputs[2]) : kNoTensor, 0};
}

bool is_marked(const Editor& e, TensorId t) {
  return t != kNoTensor && (e.maker(t, "DequantizeLinear") || explicit_rows(e, t));
}

bool same_parameters(const Editor& e, const Quantized& a, const Quantized& b) {
  return same_value(e, a.scale, b.scale) && same_value(e, a.zero, b.zero);
}

TensorId zero_operand(Editor& e, const Quantized& x) {
  const DType type = e.info(x.q).dtype;
  if (x.zero == kNoTensor) {
    const uint8_t zero = 0;
    return e.add_constant(e.graph.tensor(x.q).name + "_zero", make_constant(type, {}, std::vector<uint8_t>{zero}));
  }
  const ConstantPtr c = e.info(x.zero).constant;
  if (!c || c->dims.empty() || c->bytes.empty()) return x.zero;
  if (!std::all_of(c->bytes.begin(), c->bytes.end(), [&](std::byte b) { return b == c->bytes[0]; })) return x.zero;
  return e.add_constant(e.graph.tensor(x.zero).name + "_one", make_constant(type, {}, c->bytes.first(1)));
}

std::optional<IntegerBias> integer_bias(const std::vector<float>& bias, float x_scale,
                                        const std::vector<float>& w_scale) {
  if (w_scale.size() != 1 && w_scale.size() != bias.size()) return std::nullopt;
  std::vector<float> scale;
  for (float s : w_scale) scale.push_back(x_scale * s);
  std::vector<int32_t> q;
  for (size_t c = 0; c < bias.size(); c++) {
    const double v = std::nearbyint(static_cast<double>(bias[c]) / scale[c % scale.size()]);
    if (!(std::abs(v) <= INT32_MAX)) return std::nullopt;
    q.push_back(static_cast<int32_t>(v));
  }
  const std::vector<int64_t> dims = {static_cast<int64_t>(bias.size())};
  return IntegerBias{make_constant(DType::I32, dims, q),
                     make_constant(DType::F32, scale.size() == 1 ? std::vector<int64_t>{} : dims, scale)};
}

TensorId dequantized_bias(Editor& e, std::string name,
                          const IntegerBias& bias) {  // a copy: tensors move when one is added
  const TensorId q = e.add_constant(name + "_quantized", bias.q);
  const TensorId scale = e.add_constant(name + "_scale", bias.scale);
  const TensorId out = e.add_value(name + "_dequantized", DType::F32, to_shape(bias.q->dims));
  Node dq{.op = "DequantizeLinear", .name = name + "_DequantizeLinear"};
  dq.inputs = {q, scale};
  dq.outputs = {out};
  if (!bias.scale->dims.empty()) dq.attrs["axis"] = int64_t{0};
  e.add(std::move(dq));
  return out;
}

TensorId integers_of_bias(const Editor& e, TensorId bias, const Quantized& x, const Quantized& w) {
  const auto b = dequantized_from(e, bias);
  if (!b || e.info(b->q).dtype != DType::I32 || !e.is_constant(b->q)) return kNoTensor;
  if (b->zero != kNoTensor && !same_value(e, b->zero, kNoTensor)) return kNoTensor;
  const auto sb = constant_floats(e, b->scale), sx = constant_floats(e, x.scale), sw = constant_floats(e, w.scale);
  if (!sb || !sx || sx->size() != 1 || !sw || (sb->size() != sw->size() && sb->size() != 1 && sw->size() != 1))
    return kNoTensor;
  constexpr double kRounding = 1e-6;  // of a product in f32
  for (size_t c = 0; c < std::max(sb->size(), sw->size()); c++) {
    const double wanted = static_cast<double>((*sx)[0]) * (*sw)[c % sw->size()];
    if (std::abs((*sb)[c % sb->size()] - wanted) > kRounding * wanted) return kNoTensor;
  }
  return b->q;
}

std::optional<std::vector<float>> constant_floats(const Editor& e, TensorId t) {
  if (e.is_constant(t)) {
    const Constant& c = *e.info(t).constant;
    if (c.dtype != DType::F32) return std::nullopt;
    return std::vector<float>(c.as<float>().begin(), c.as<float>().end());
  }
  const auto q = dequantized_from(e, t);
  if (!q || !e.is_constant(q->q) || !e.is_constant(q->scale)) return std::nullopt;
  const Constant &values = *e.info(q->q).constant, &scale = *e.info(q->scale).constant;
  if (values.dims.size() > 1 && scale.elements() > 1) return std::nullopt;
  std::vector<float> out;
  for (size_t i = 0; i < static_cast<size_t>(values.elements()); i++) {
    const size_t s = i % static_cast<size_t>(scale.elements());
    double zero = 0;
    if (q->zero != kNoTensor) {
      if (!e.is_constant(q->zero)) return std::nullopt;
      const Constant& z = *e.info(q->zero).constant;
      zero = element(z, i % static_cast<size_t>(z.elements()));
    }
    out.push_back(static_cast<float>((element(values, i) - zero) * scale.as<float>()[s]));
  }
  return out;
}

}  // namespace ingot
