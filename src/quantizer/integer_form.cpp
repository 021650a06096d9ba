// QDQ -> integer operators.
//   Q(Conv(DQ(x), DQ(w), b))        -> QLinearConv(x, w, b / (sx sw))
//   Conv(DQ(x), DQ(w), b)           -> Cast(ConvInteger(x, w)) * (sx sw) + b
//   Q(MatMul(DQ(a), DQ(b)))         -> QLinearMatMul(a, b)
//   MatMul(DQ(a), DQ(b))            -> Cast(MatMulInteger(a, b)) * (sa sb)
//   Gemm(DQ(a), DQ(b), c)           -> Cast(MatMulInteger(a, b)) * (sa sb) + c
//   MatMul(DQ(a) by rows, DQ(b))    -> Cast(MatMulInteger(a, b) - za sum(b)) * sa * sb
//   Q(Reshape(DQ(x))), one scale    -> Reshape(x)
// An activation between product and Q is left out where the clipping of Q does the same.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "passes/constants.h"
#include "quantizer/facts.h"
#include "quantizer/form_parts.h"
#include "quantizer/forms.h"
#include "quantizer/products.h"

namespace ingot {
namespace {

using Handle = Editor::Handle;

class IntegerForm {
 public:
  explicit IntegerForm(Graph& g, bool keep_bias = false) : e_(g), keep_bias_(keep_bias) {}

  FormReport run() {
    for (Handle h = 0, end = e_.size(); h < end; h++) {
      if (!e_.alive(h)) continue;
      const Node& n = e_.node(h);
      if (!n.domain.empty()) continue;
      if (is_product(n))
        product(h);
      else if (keeps_scale(n))
        report_.changed += move(h);
    }
    e_.finish();
    return std::move(report_);
  }

  void run_rows() {
    for (Handle h = 0, end = e_.size(); h < end; h++) {
      if (!e_.alive(h) || !is_product(e_.node(h))) continue;
      const Node n = e_.node(h);
      const auto w = dequantized_from(e_, n.inputs[1]);
      if (const auto rows = rows_of(n); rows && w) row_product(h, n, *rows, *w);
    }
    e_.finish();
  }

 private:
  // The first operand, where it has a scale for each row.
  std::optional<Quantized> rows_of(const Node& n) {
    const auto x = dequantized_from(e_, n.inputs[0]);
    return x && is_one(e_.info(x->scale)) ? std::nullopt : dequantized_rows(e_, n.inputs[0]);
  }

  void product(Handle h) {
    const Node n = e_.node(h);
    const auto x = dequantized_from(e_, n.has_input(0) ? n.inputs[0] : kNoTensor);
    const auto w = dequantized_from(e_, n.has_input(1) ? n.inputs[1] : kNoTensor);
    const bool x_marked = n.has_input(0) && is_marked(e_, n.inputs[0]);
    const bool w_marked = n.has_input(1) && is_marked(e_, n.inputs[1]);
    if (!x_marked && !w_marked) return;
    std::string why;
    if (!x_marked)
      why = "only its weight is quantized";
    else if (!w_marked)
      why = "its second operand is fp32";
    else if (const auto rows = rows_of(n); rows && w)
      why = row_product(h, n, *rows, *w);
    else if (!x || !w)
      why = "its operands have scales or types that integer operators do not take";
    else if (!is_byte(*x) || !is_byte(*w) || !is_one(e_.info(x->scale)))
      why = "its operands have scales that integer operators do not take";
    else if (n.is("ConvTranspose"))
      why = "ONNX has no integer operator for it";
    else if (n.is("Conv"))
      why = convolution(h, n, *x, *w);
    else
      why = matrix_product(h, n, *x, *w);
    if (why.empty())
      report_.changed++;
    else
      stays(n, why);
  }
  void stays(const Node& n, const std::string& why) {
    report_.stays.push_back(fmt::format("{}: stays QDQ, {}", n.label(), why));
    report_.reasons[n.name] = why;
  }

  bool is_byte(const Quantized& x) const { return e_.info(x.q).dtype != DType::I32; }

  // The QuantizeLinear that alone reads t, straight or through activations that its clipping makes superfluous.
  struct Ending {
    Handle quantize;
    Quantized result;
    std::vector<Handle> dropped;
  };
  std::optional<Ending> ending(TensorId t) const {
    std::vector<Handle> dropped;
    while (e_.single_use(t)) {
      const Handle h = e_.consumers(t)[0];
      const Node& n = e_.node(h);
      if (n.is("Relu") || (n.is("Clip") && n.inputs[0] == t)) {
        dropped.push_back(h);
        t = n.outputs[0];
        continue;
      }
      if (!n.is("QuantizeLinear") || n.inputs[0] != t || n.get_int("block_size", 0) != 0) break;
      Ending end{h, {n.outputs[0], n.inputs[1], n.has_input(2) ? n.inputs[2] : kNoTensor, 0}, dropped};
      if (!is_one(e_.info(end.result.scale)) || e_.info(end.result.scale).dtype != DType::F32 || !is_byte(end.result))
        break;
      for (Handle d : dropped)
        if (!clipping_does(e_.node(d), end.result)) return std::nullopt;
      return end;
    }
    return std::nullopt;
  }

  bool clipping_does(const Node& n, const Quantized& to) const {
    const auto scale = scalar_value(e_.info(to.scale));
    const auto zero = to.zero == kNoTensor ? std::optional(0.0) : scalar_value(e_.info(to.zero));
    if (!scale || !zero) return false;
    const IntegerRange range = integer_range(e_.info(to.q).dtype);
    auto rounds_to = [&](double v) { return std::nearbyint(v / *scale) + *zero; };
    if (n.is("Relu")) return *zero <= range.least;
    for (size_t i : {1, 2}) {
      if (!n.has_input(i)) continue;
      const auto limit = scalar_value(e_.info(n.inputs[i]));
      if (!limit) return false;
      if (i == 1 ? rounds_to(*limit) > range.least : rounds_to(*limit) < range.most) return false;
    }
    return true;
  }

  // The node that makes the integers that Q made; Q and what is dropped go.
  void replace_ending(Handle h, const Ending& end, Node with) {
    const Node old = e_.node(h);
    with.outputs = {end.result.q};
    with.name = old.name;
    with.origins = old.origins;
    e_.erase(end.quantize);
    for (Handle d : end.dropped) e_.erase(d);
    e_.erase(h);
    e_.add(std::move(with));
  }

  bool per_axis(const Quantized& w, int64_t axis) const {
    const std::optional<Shape>& scales = e_.info(w.scale).shape;
    return scales && scales->size() == 1 && is_const(*scales) && !is_one(e_.info(w.scale)) && w.axis == axis;
  }

  // The bias in steps of sx sw; nothing when it is not constant or does not fit.
  std::optional<TensorId> steps_of_bias(const Node& n, const Quantized& x, const Quantized& w) {
    if (!n.has_input(2)) return kNoTensor;
    if (const TensorId q = integers_of_bias(e_, n.inputs[2], x, w); q != kNoTensor) return q;
    if (keep_bias_) return std::nullopt;
    const auto values = constant_floats(e_, n.inputs[2]);
    const auto sx = constant_floats(e_, x.scale), sw = constant_floats(e_, w.scale);
    if (!values || !sx || !sw) return std::nullopt;
    const auto bias = integer_bias(*values, (*sx)[0], *sw);
    if (!bias) return std::nullopt;
    return e_.add_constant(n.name + "_bias_quantized", bias->q);
  }

  std::string convolution(Handle h, const Node& n, const Quantized& x, const Quantized& w) {
    if (!is_one(e_.info(w.scale)) && !per_axis(w, 0)) return "its weight has scales along another axis than channels";
    if (const auto end = ending(n.outputs[0]))
      if (const auto bias = steps_of_bias(n, x, w)) {
        Node q{.op = "QLinearConv", .attrs = n.attrs};
        q.inputs = {x.q,     x.scale,         zero_operand(e_, x), w.q,
                    w.scale, channel_zero(w), end->result.scale,   zero_operand(e_, end->result)};
        if (*bias != kNoTensor) q.inputs.push_back(*bias);
        replace_ending(h, *end, std::move(q));
        return "";
      }
    // ConvInteger would allow it; onnxruntime has no kernel for that.
    if (!is_one(e_.info(zero_operand(e_, w)))) return "the zero points of its weight differ from channel to channel";
    const std::optional<Shape> shape = e_.info(n.outputs[0]).shape, weight_shape = e_.info(w.q).shape;
    const size_t spatial = shape ? shape->size() - 2 : weight_shape ? weight_shape->size() - 2 : 0;
    if (spatial == 0) return "its rank is not known";
    const Quantized weight = unsigned_weight(w);
    TensorId acc = e_.emit(n, "ConvInteger", {x.q, weight.q, zero_operand(e_, x), zero_operand(e_, weight)}, n.attrs,
                           DType::I32, shape);
    const TensorId steps = n.has_input(2) ? integers_of_bias(e_, n.inputs[2], x, w) : kNoTensor;
    if (steps != kNoTensor) acc = e_.emit(n, "Add", {acc, channel_vector(n, steps, spatial)}, {}, DType::I32, shape);
    TensorId y = scaled(n, acc, x, channel_vector(n, w.scale, spatial));
    if (n.has_input(2) && steps == kNoTensor)
      y = e_.emit(n, "Add", {y, channel_vector(n, n.inputs[2], spatial)}, {}, DType::F32, shape);
    finish(h, n, y);
    return "";
  }

  // QLinearConv wants as many zero points as scales of the weight.
  TensorId channel_zero(const Quantized& w) {
    if (w.zero != kNoTensor || is_one(e_.info(w.scale))) return w.zero == kNoTensor ? zero_operand(e_, w) : w.zero;
    const std::optional<Shape>& scales = e_.info(w.scale).shape;
    std::byte* data = nullptr;
    ConstantPtr c = make_constant(e_.info(w.q).dtype, scales ? numbers(*scales) : std::vector<int64_t>{}, &data);
    std::fill_n(data, c->bytes.size(), std::byte{0});
    return e_.add_constant(e_.graph.tensor(w.q).name + "_zero", c);
  }

  // Signed weights as unsigned ones with a zero point of 128: more engines have ConvInteger for these.
  Quantized unsigned_weight(const Quantized& w) {
    const ConstantPtr c = e_.info(w.q).constant;
    const ConstantPtr zero = w.zero == kNoTensor ? nullptr : e_.info(w.zero).constant;
    if (e_.info(w.q).dtype != DType::I8 || !c || (w.zero != kNoTensor && !zero)) return w;
    auto shifted = [&](const Constant& from) {
      std::vector<uint8_t> to;
      for (std::byte b : from.bytes) to.push_back(static_cast<uint8_t>(b) ^ 0x80);
      return make_constant(DType::U8, from.dims, to);
    };
    Quantized out = w;
    out.q = e_.add_constant(e_.graph.tensor(w.q).name + "_u8", shifted(*c));
    const Constant none{DType::I8, {}, std::span<const std::byte>(&kZero, 1), {}, nullptr};
    out.zero = e_.add_constant(e_.graph.tensor(w.q).name + "_u8_zero", shifted(zero ? *zero : none));
    return out;
  }

  // [C] -> [C, 1, 1]; one number stays one.
  TensorId channel_vector(const Node& n, TensorId t, size_t spatial) {
    if (const std::optional<Shape>& shape = e_.info(t).shape; shape && shape->empty()) return t;
    if (const ConstantPtr c = e_.info(t).constant) {
      std::vector<int64_t> dims(spatial + 1, 1);
      dims[0] = c->elements();
      return e_.add_constant(e_.graph.tensor(t).name + "_channels", reshaped(c, dims));
    }
    std::vector<int64_t> dims(spatial + 1, 1);
    dims[0] = -1;
    return e_.emit(n, "Reshape", {t, e_.add_ints(n.name + "_channels", dims)}, {}, DType::F32, std::nullopt);
  }

  // Cast(acc) * (scale of x * scale of w)
  TensorId scaled(const Node& n, TensorId acc, const Quantized& x, TensorId w_scale) {
    const std::optional<Shape> shape = e_.info(acc).shape;
    const TensorId real = e_.emit(n, "Cast", {acc}, {{"to", static_cast<int64_t>(DType::F32)}}, DType::F32, shape);
    const TensorId both = e_.emit(n, "Mul", {x.scale, w_scale}, {}, DType::F32, e_.info(w_scale).shape);
    return e_.emit(n, "Mul", {real, both}, {}, DType::F32, shape);
  }

  std::string matrix_product(Handle h, const Node& n, const Quantized& x, const Quantized& w) {
    const bool gemm = n.is("Gemm");
    if (gemm && n.get_int("transA", 0) != 0) return "it transposes its first operand";
    const std::optional<Shape> b_shape = e_.info(w.q).shape;
    if (!b_shape || b_shape->empty()) return "the rank of its second operand is not known";
    const auto rank = static_cast<int64_t>(b_shape->size());
    const bool transposes = gemm && n.get_int("transB", 0) != 0;
    const bool vector = !is_one(e_.info(w.scale));
    if (vector && (rank != 2 || !per_axis(w, transposes ? 0 : 1)))
      return "its weight has scales along another axis than columns";
    Quantized b = w;
    if (transposes) {
      const ConstantPtr c = e_.info(w.q).constant;
      if (!c) return "its second operand is transposed and not constant";
      b.q = e_.add_constant(e_.graph.tensor(w.q).name + "_transposed", transposed(c, {1, 0}));
    }
    if (!gemm)
      if (const auto end = ending(n.outputs[0])) {
        Node q{.op = "QLinearMatMul"};
        q.inputs = {x.q,     x.scale,         zero_operand(e_, x), b.q,
                    b.scale, channel_zero(b), end->result.scale,   zero_operand(e_, end->result)};
        replace_ending(h, *end, std::move(q));
        return "";
      }
    const std::optional<Shape> shape = e_.info(n.outputs[0]).shape;
    TensorId acc =
        e_.emit(n, "MatMulInteger", {x.q, b.q, zero_operand(e_, x), zero_operand(e_, b)}, {}, DType::I32, shape);
    const bool plain = n.get_float("alpha", 1.f) == 1 && n.get_float("beta", 1.f) == 1;
    const TensorId steps = gemm && plain && n.has_input(2) ? integers_of_bias(e_, n.inputs[2], x, w) : kNoTensor;
    if (steps != kNoTensor) acc = e_.emit(n, "Add", {acc, steps}, {}, DType::I32, shape);
    TensorId y = scaled(n, acc, x, b.scale);
    if (gemm && steps == kNoTensor) y = with_bias(n, y, shape);
    finish(h, n, y);
    return "";
  }

  // Zero points of rows are taken off by what they add up to: (a - z) b = a b - z sum(b)
  std::string row_product(Handle h, const Node& n, const Quantized& x, const Quantized& w) {
    const bool gemm = n.is("Gemm");
    if (!gemm && !n.is("MatMul")) return "its operands have scales that integer operators do not take";
    if (gemm && n.get_int("transA", 0) != 0) return "it transposes its first operand";
    const bool transposes = gemm && n.get_int("transB", 0) != 0;
    const ConstantPtr given = e_.info(w.q).constant;
    if (!given || given->dims.size() != 2 || !is_byte(w))
      return "its second operand is not a constant matrix of 8 bits";
    if (!is_one(e_.info(w.scale)) && !per_axis(w, transposes ? 0 : 1))
      return "its weight has scales along another axis than columns";
    Quantized b = w;
    ConstantPtr weight = given;
    if (transposes) {
      weight = transposed(given, {1, 0});
      b.q = e_.add_constant(e_.graph.tensor(w.q).name + "_transposed", weight);
    }
    const std::optional<Shape> shape = e_.info(n.outputs[0]).shape;
    const TensorId none = zero_operand(e_, {x.q, x.scale, kNoTensor, 0});
    TensorId acc = e_.emit(n, "MatMulInteger", {x.q, b.q, none, zero_operand(e_, b)}, {}, DType::I32, shape);
    if (x.zero != kNoTensor) {
      const auto sums = column_sums(*weight, b);
      if (!sums) return "the zero points of its weight are not constant";
      const TensorId zero =
          e_.emit(n, "Cast", {x.zero}, {{"to", static_cast<int64_t>(DType::I32)}}, DType::I32, e_.info(x.zero).shape);
      const TensorId sum = e_.add_constant(n.name + "_sums", make_constant(DType::I32, {weight->dims[1]}, *sums));
      acc = e_.emit(n, "Sub", {acc, e_.emit(n, "Mul", {zero, sum}, {}, DType::I32, shape)}, {}, DType::I32, shape);
    }
    const TensorId real = e_.emit(n, "Cast", {acc}, {{"to", static_cast<int64_t>(DType::F32)}}, DType::F32, shape);
    TensorId y = e_.emit(n, "Mul", {real, x.scale}, {}, DType::F32, shape);
    y = e_.emit(n, "Mul", {y, b.scale}, {}, DType::F32, shape);
    if (gemm) y = with_bias(n, y, shape);
    finish(h, n, y);
    return "";
  }
  std::optional<std::vector<int32_t>> column_sums(const Constant& c, const Quantized& b) const {
    const ConstantPtr zero = b.zero == kNoTensor ? nullptr : e_.info(b.zero).constant;
    if (b.zero != kNoTensor && !zero) return std::nullopt;
    auto number = [](const Constant& from, size_t i) -> int32_t {
      return from.dtype == DType::I8 ? from.as<int8_t>()[i] : from.as<uint8_t>()[i];
    };
    const auto columns = static_cast<size_t>(c.dims[1]);
    std::vector<int32_t> out(columns);
    for (size_t i = 0; i < static_cast<size_t>(c.elements()); i++)
      out[i % columns] +=
          number(c, i) - (zero ? number(*zero, i % columns % static_cast<size_t>(zero->elements())) : 0);
    return out;
  }

  // alpha * y + beta * C
  TensorId with_bias(const Node& n, TensorId y, const std::optional<Shape>& shape) {
    auto times = [&](TensorId t, float factor, const std::optional<Shape>& s) {
      if (factor == 1) return t;
      return e_.emit(n, "Mul", {t, e_.add_constant(n.name + "_factor", filled(factor))}, {}, DType::F32, s);
    };
    y = times(y, n.get_float("alpha", 1.f), shape);
    if (!n.has_input(2)) return y;
    const TensorId c = times(n.inputs[2], n.get_float("beta", 1.f), e_.info(n.inputs[2]).shape);
    return e_.emit(n, "Add", {y, c}, {}, DType::F32, shape);
  }

  // y takes the place of the node's result.
  void finish(Handle h, const Node& n, TensorId y) {
    const Handle last = e_.producer(y);
    Node node = e_.node(last);
    node.outputs = n.outputs;
    e_.erase(last);
    e_.erase(h);
    e_.add(std::move(node));
  }

  bool move(Handle h) {
    const Node n = e_.node(h);
    const size_t data = n.is("Concat") ? n.inputs.size() : 1;
    std::optional<Quantized> first;
    Node moved = n;
    for (size_t i = 0; i < data; i++) {
      const auto x = dequantized_from(e_, n.has_input(i) ? n.inputs[i] : kNoTensor);
      if (!x || !is_one(e_.info(x->scale)) || !is_byte(*x)) return false;
      if (first && (!same_parameters(e_, *first, *x) || e_.info(first->q).dtype != e_.info(x->q).dtype)) return false;
      first = x;
      moved.inputs[i] = x->q;
    }
    if (!first) return false;
    std::vector<Handle> quantizers;
    for (size_t i = 0; i < n.outputs.size(); i++) {
      if (n.outputs[i] == kNoTensor) continue;
      const auto end = ending(n.outputs[i]);
      if (!end || !end->dropped.empty() || !same_parameters(e_, *first, end->result)) return false;
      if (e_.info(end->result.q).dtype != e_.info(first->q).dtype) return false;
      quantizers.push_back(end->quantize);
      moved.outputs[i] = end->result.q;
    }
    if (quantizers.empty()) return false;
    for (Handle q : quantizers) e_.erase(q);
    e_.erase(h);
    e_.add(std::move(moved));
    return true;
  }

  static constexpr std::byte kZero{0};
  Editor e_;
  bool keep_bias_;
  FormReport report_;
};

}  // namespace

FormReport to_integer_operators(Graph& graph, bool keep_bias) { return IntegerForm(graph, keep_bias).run(); }
void rows_to_integer_operators(Graph& graph) { IntegerForm(graph).run_rows(); }

}  // namespace ingot
