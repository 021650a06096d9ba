#include "quantizer/form_parts.h"

#include <algorithm>

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
