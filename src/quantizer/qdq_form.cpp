// Integer operators -> QDQ: the formulas of integer_form.cpp, read from right to left.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/error.h"
#include "passes/constants.h"
#include "quantizer/form_parts.h"
#include "quantizer/forms.h"

namespace ingot {
namespace {

using Handle = Editor::Handle;

class QdqForm {
 public:
  explicit QdqForm(Graph& g) : e_(g) {}

  FormReport run() {
    for (Handle h = 0, end = e_.size(); h < end; h++) {
      if (!e_.alive(h) || !e_.node(h).domain.empty()) continue;
      const std::string& op = e_.node(h).op;
      std::string why;
      if (op == "QLinearConv" || op == "QLinearMatMul")
        why = linear(h);
      else if (op == "ConvInteger" || op == "MatMulInteger")
        why = integer(h);
      else
        continue;
      if (why.empty())
        report_.changed++;
      else
        report_.stays.push_back(fmt::format("{}: stays as it is, {}", e_.node(h).label(), why));
    }
    e_.finish();
    return std::move(report_);
  }

 private:
  std::optional<size_t> rank(TensorId t) const {
    const std::optional<Shape>& shape = e_.info(t).shape;
    return shape ? std::optional(shape->size()) : std::nullopt;
  }

  // DequantizeLinear(q), each once.
  TensorId dequantized(const Node& from, const Quantized& x) {
    auto& made = made_[{x.q, x.scale, x.zero}];
    if (made) return *made;
    std::vector<TensorId> inputs = {x.q, x.scale};
    if (x.zero != kNoTensor) inputs.push_back(x.zero);
    std::map<std::string, Attribute> attrs;
    if (!is_one(e_.info(x.scale))) attrs["axis"] = x.axis;
    made = e_.emit(from, "DequantizeLinear", inputs, attrs, DType::F32, e_.info(x.q).shape);
    return *made;
  }

  // A zero point that is one number for scales that are many.
  TensorId spread(TensorId zero, TensorId scale) {
    if (zero == kNoTensor || is_one(e_.info(scale)) || !is_one(e_.info(zero))) return zero;
    const ConstantPtr c = e_.info(zero).constant;
    const std::optional<Shape>& scales = e_.info(scale).shape;
    if (!c || !scales || !is_const(*scales)) return zero;
    std::byte* data = nullptr;
    ConstantPtr many = make_constant(c->dtype, numbers(*scales), &data);
    std::fill_n(data, many->bytes.size(), c->bytes[0]);
    return e_.add_constant(e_.graph.tensor(zero).name + "_channels", many);
  }

  // A constant of one element as a scalar, so that it does not look like a vector of scales.
  TensorId plain(TensorId t) {
    if (t == kNoTensor || !is_one(e_.info(t)) || rank(t) == 0) return t;
    const ConstantPtr c = e_.info(t).constant;
    return c ? e_.add_constant(e_.graph.tensor(t).name + "_one", reshaped(c, {})) : t;
  }

  std::string linear(Handle h) {
    const Node n = e_.node(h);
    const bool conv = n.is("QLinearConv");
    Quantized x{n.inputs[0], plain(n.inputs[1]), plain(n.inputs[2]), 0};
    Quantized w{n.inputs[3], plain(n.inputs[4]), plain(n.inputs[5]), 0};
    Quantized y{n.outputs[0], plain(n.inputs[6]), plain(n.inputs[7]), 0};
    const auto x_rank = rank(x.q), w_rank = rank(w.q);
    if (!x_rank || !w_rank) return "a rank is not known";
    for (TensorId t : {x.scale, w.scale, y.scale})
      if (e_.info(t).dtype != DType::F32) return fmt::format("its scales are {}", name(e_.info(t).dtype));
    if (!is_one(e_.info(x.scale)) || !is_one(e_.info(y.scale))) return "it has scales for each row";
    if (!is_one(e_.info(w.scale)) && rank(w.scale) != 1) return "the scales of its weight are no vector";
    w.axis = conv ? 0 : static_cast<int64_t>(*w_rank) - 1;
    w.zero = spread(w.zero, w.scale);
    std::vector<TensorId> inputs = {dequantized(n, x), dequantized(n, w)};
    if (conv && n.has_input(8)) inputs.push_back(bias(n, x, w));
    const std::optional<Shape> shape = e_.info(y.q).shape;
    const TensorId real = e_.emit(n, conv ? "Conv" : "MatMul", inputs, n.attrs, DType::F32, shape);
    e_.edit(e_.producer(real)).name = n.name;
    Node q{.op = "QuantizeLinear", .name = n.name + "/QuantizeLinear", .origins = n.origins};
    q.inputs = {real, y.scale, y.zero};
    q.outputs = {y.q};
    e_.erase(h);
    e_.add(std::move(q));
    return "";
  }

  TensorId bias(const Node& n, const Quantized& x, const Quantized& w) {
    const auto sx = constant_floats(e_, x.scale), sw = constant_floats(e_, w.scale);
    TensorId scale = kNoTensor;
    if (sx && sw) {
      std::vector<float> both;
      for (float s : *sw) both.push_back(s * (*sx)[0]);
      scale = e_.add_constant(n.name + "_bias_scale", make_constant(DType::F32, e_.info(w.scale).constant->dims, both));
    } else {
      scale = e_.emit(n, "Mul", {x.scale, w.scale}, {}, DType::F32, e_.info(w.scale).shape);
    }
    return dequantized(n, {n.inputs[8], scale, kNoTensor, 0});
  }

  // acc -> Cast -> Mul(scale), each the only reader of the one before.
  std::string integer(Handle h) {
    const Node n = e_.node(h);
    const bool conv = n.is("ConvInteger");
    auto next = [&](TensorId t, const char* op) {
      if (!e_.single_use(t)) return Editor::kNone;
      const Handle reader = e_.consumers(t)[0];
      return e_.node(reader).is(op) ? reader : Editor::kNone;
    };
    const Handle cast = next(n.outputs[0], "Cast");
    if (cast == Editor::kNone || e_.node(cast).get_int("to", 0) != static_cast<int64_t>(DType::F32))
      return "its result is used as integers";
    const Handle mul = next(e_.node(cast).outputs[0], "Mul");
    if (mul == Editor::kNone) return "its result is not scaled";
    const Node times = e_.node(mul);
    const TensorId scale = times.inputs[times.inputs[0] == e_.node(cast).outputs[0] ? 1 : 0];
    Quantized x{n.inputs[0], kNoTensor, plain(n.has_input(2) ? n.inputs[2] : kNoTensor), 0};
    Quantized w{n.inputs[1], kNoTensor, plain(n.has_input(3) ? n.inputs[3] : kNoTensor), 0};
    const auto w_rank = rank(w.q);
    if (!w_rank) return "the rank of its weight is not known";
    w.axis = conv ? 0 : static_cast<int64_t>(*w_rank) - 1;
    if (x.zero != kNoTensor && !is_one(e_.info(x.zero))) return "it has zero points for each row";
    // scale = scale of x * scale of w; a product that is already computed is all given to w.
    if (const Node* both = e_.maker(scale, "Mul"); both && is_one(e_.info(both->inputs[0]))) {
      x.scale = plain(both->inputs[0]);
      w.scale = both->inputs[1];
    } else if (both && is_one(e_.info(both->inputs[1]))) {
      x.scale = plain(both->inputs[1]);
      w.scale = both->inputs[0];
    } else {
      x.scale = e_.add_constant(n.name + "_one", filled(1.f));
      w.scale = scale;
    }
    w.scale = as_vector(plain(w.scale), conv ? *w_rank - 2 : 0);
    if (w.scale == kNoTensor) return "its scale is not one number for each channel";
    w.zero = spread(w.zero, w.scale);
    const TensorId dx = dequantized(n, x), dw = dequantized(n, w);
    Node real{.op = conv ? "Conv" : "MatMul", .name = n.name, .attrs = n.attrs, .origins = n.origins};
    real.inputs = {dx, dw};
    real.outputs = times.outputs;
    e_.erase(mul);
    e_.erase(cast);
    e_.erase(h);
    e_.add(std::move(real));
    return "";
  }

  // Scales that lie along the axis with `behind` axes behind it -> a vector; kNoTensor when they do not.
  TensorId as_vector(TensorId t, size_t behind) {
    const auto axes = rank(t);
    if (axes == 0 || (axes == 1 && behind == 0)) return t;
    const ConstantPtr c = e_.info(t).constant;
    if (!c || c->dims.size() <= behind || c->dims[c->dims.size() - 1 - behind] != c->elements()) return kNoTensor;
    return e_.add_constant(e_.graph.tensor(t).name + "_vector", reshaped(c, {c->elements()}));
  }

  Editor e_;
  FormReport report_;
  std::map<std::array<TensorId, 3>, std::optional<TensorId>> made_;
};

// Operands that are scales, each with its zero point.
std::vector<std::pair<size_t, size_t>> parameters(const Node& n) {
  if (!n.domain.empty()) return {};
  if (n.op == "QuantizeLinear" || n.op == "DequantizeLinear") return {{1, 2}};
  if (n.op == "QLinearConv" || n.op == "QLinearMatMul") return {{1, 2}, {4, 5}, {6, 7}};
  return {};
}

}  // namespace

FormReport to_qdq(Graph& graph) { return QdqForm(graph).run(); }

void check_quantization(const Graph& g) {
  for (const Node& n : g.nodes)
    for (auto [s, z] : parameters(n)) {
      if (!n.has_input(s)) continue;
      const ConstantPtr& scale = g.info(n.inputs[s]).constant;
      if (!scale) continue;
      if (scale->dtype == DType::F32)
        for (float v : scale->as<float>())
          if (!std::isfinite(v) || v <= 0)
            invalid_model("{}: scale '{}' holds {}, which is not a positive number", n.label(),
                          g.tensor(n.inputs[s]).name, v);
      if (!n.has_input(z) || !g.info(n.inputs[z]).constant) continue;
      const Constant& zero = *g.info(n.inputs[z]).constant;
      if (zero.elements() != scale->elements() && zero.elements() != 1)
        invalid_model("{}: scale '{}' has {} elements and zero point '{}' {}", n.label(), g.tensor(n.inputs[s]).name,
                      scale->elements(), g.tensor(n.inputs[z]).name, zero.elements());
    }
}

}  // namespace ingot
