#include "quantizer/marks.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "ops/op.h"
#include "passes/constants.h"
#include "passes/passes.h"
#include "quantizer/form_parts.h"
#include "quantizer/products.h"
#include "writer/onnx_graph.h"

namespace ingot {
namespace {

using Handle = Editor::Handle;

// A constant that is read through DequantizeLinear without blocks; its scales and zero points are constant too.
struct MarkedConstant {
  ConstantPtr q, scale, zero;  // zero may be nullptr
  int64_t axis = 0;
  bool many = false;  // scales, along `axis`
};

std::optional<MarkedConstant> marked_constant(const Editor& e, TensorId t) {
  const Node* n = e.maker(t, "DequantizeLinear");
  if (!n || n->get_int("block_size", 0) != 0 || !e.is_constant(n->inputs[0]) || !e.is_constant(n->inputs[1]))
    return std::nullopt;
  MarkedConstant out{e.info(n->inputs[0]).constant, e.info(n->inputs[1]).constant, nullptr, n->get_int("axis", 1)};
  if (n->has_input(2)) {
    out.zero = e.info(n->inputs[2]).constant;
    if (!out.zero) return std::nullopt;
  }
  out.many = out.scale->elements() != 1;
  if (out.axis < 0) out.axis += static_cast<int64_t>(out.q->dims.size());
  return out;
}

// The axis of `to` with as many elements before it, and as long; nothing when there is none.
std::optional<int64_t> same_axis(const std::vector<int64_t>& from, int64_t axis, const std::vector<int64_t>& to) {
  auto before = [](const std::vector<int64_t>& dims, int64_t a) {
    return std::accumulate(dims.begin(), dims.begin() + a, int64_t{1}, std::multiplies<>());
  };
  for (int64_t a = 0; a < static_cast<int64_t>(to.size()); a++)
    if (to[static_cast<size_t>(a)] == from[static_cast<size_t>(axis)] && before(to, a) == before(from, axis)) return a;
  return std::nullopt;
}

class Settler {
 public:
  explicit Settler(Graph& g) : e_(g) {}

  void run() {
    for (Handle h = 0; h < e_.size(); h++) {
      if (!e_.alive(h) || !e_.node(h).domain.empty() || !e_.node(h).has_input(0)) continue;
      if (e_.node(h).is("Transpose") || traits(e_.node(h)).movement == Movement::kInOrder) rearrange(h);
      if (e_.alive(h) && e_.node(h).is("Gather")) gather(h);
    }
    for (Handle h = 0; h < e_.size(); h++)
      if (e_.alive(h) && e_.node(h).is("DequantizeLinear")) own_zero_point(h);
    e_.finish();
  }

 private:
  // Weights do not share a zero point: onnxruntime, changing s8 to u8, changes it once for each weight and fails.
  void own_zero_point(Handle h) {
    const Node& n = e_.node(h);
    if (!e_.is_constant(n.inputs[0]) || !n.has_input(2) || !e_.is_constant(n.inputs[2])) return;
    if (e_.consumers(n.inputs[2]).size() < 2) return;
    const std::string name = e_.graph.tensor(n.inputs[0]).name + "_zero_point";
    e_.set_input(h, 2, e_.add_constant(name, e_.info(n.inputs[2]).constant));
  }

  void rearrange(Handle h) {
    const Node n = e_.node(h);
    const auto c = marked_constant(e_, n.inputs[0]);
    const std::optional<Shape>& shape = e_.info(n.outputs[0]).shape;
    if (!c || !shape || !is_const(*shape)) return;
    const std::vector<int64_t> dims = numbers(*shape);
    ConstantPtr q;
    std::optional<int64_t> axis = c->axis;
    if (n.is("Transpose")) {
      std::vector<int64_t> perm(dims.size());
      std::iota(perm.rbegin(), perm.rend(), 0);
      perm = n.get_ints("perm", perm);
      q = transposed(c->q, perm);
      axis = std::find(perm.begin(), perm.end(), c->axis) - perm.begin();
    } else {
      q = reshaped(c->q, dims);
      if (c->many) axis = same_axis(c->q->dims, c->axis, dims);
    }
    if (!q || !axis) return;
    const Node old = *e_.maker(n.inputs[0]);
    std::vector<TensorId> inputs = {e_.add_constant(e_.graph.tensor(old.inputs[0]).name, q), old.inputs[1]};
    if (c->zero) inputs.push_back(old.inputs[2]);
    std::map<std::string, Attribute> attrs = old.attrs;
    attrs.erase("axis");
    if (c->many) attrs["axis"] = *axis;
    const TensorId out = e_.emit(old, "DequantizeLinear", inputs, attrs, e_.info(n.outputs[0]).dtype, to_shape(dims));
    if (e_.is_output(n.outputs[0])) return;
    e_.replace_uses(n.outputs[0], out);
  }

  void gather(Handle h) {
    const Node n = e_.node(h);
    const auto c = marked_constant(e_, n.inputs[0]);
    if (!c || e_.info(n.inputs[0]).dtype != DType::F32 || !n.has_input(1)) return;
    const bool rows = n.get_int("axis", 0) == 0 && c->axis == 0;
    if (c->many && (!rows || c->q->dims.size() != 2)) return;
    const Node mark = *e_.maker(n.inputs[0]);
    const std::optional<Shape> shape = e_.info(n.outputs[0]).shape;
    const TensorId q = e_.emit(n, "Gather", {mark.inputs[0], n.inputs[1]}, n.attrs, c->q->dtype, shape);
    e_.edit(e_.producer(q)).name = n.name;
    Node last{.op = "DequantizeLinear", .name = n.name + "/DequantizeLinear", .origins = n.origins};
    last.outputs = n.outputs;
    if (c->many) {
      TensorId real = e_.emit(n, "Cast", {q}, {{"to", static_cast<int64_t>(DType::F32)}}, DType::F32, shape);
      if (c->zero && std::any_of(c->zero->bytes.begin(), c->zero->bytes.end(), [](auto b) { return b != std::byte{}; }))
        real = e_.emit(n, "Sub", {real, column(n, as_floats(*c->zero))}, {}, DType::F32, shape);
      last.op = "Mul";
      last.inputs = {real, column(n, as_floats(*c->scale))};
    } else {
      last.inputs = mark.inputs;
      last.inputs[0] = q;
    }
    e_.erase(h);
    e_.add(std::move(last));
  }

  static std::vector<float> as_floats(const Constant& c) {
    std::vector<float> out;
    for (size_t i = 0; i < static_cast<size_t>(c.elements()); i++)
      out.push_back(c.dtype == DType::F32  ? c.as<float>()[i]
                    : c.dtype == DType::I8 ? static_cast<float>(c.as<int8_t>()[i])
                                           : static_cast<float>(c.as<uint8_t>()[i]));
    return out;
  }
  // A number for each row of the table, those of the rows that are gathered.
  TensorId column(const Node& n, const std::vector<float>& values) {
    const ConstantPtr c = make_constant(DType::F32, {static_cast<int64_t>(values.size()), 1}, values);
    return e_.emit(n, "Gather", {e_.add_constant(n.name + "_rows", c), n.inputs[1]}, {{"axis", int64_t{0}}}, DType::F32,
                   std::nullopt);
  }

  Editor e_;
};

// Integers and zero points with the upper bit turned over.
ConstantPtr shifted(const Constant& from, DType to) {
  std::byte* data = nullptr;
  ConstantPtr c = make_constant(to, from.dims, &data);
  std::transform(from.bytes.begin(), from.bytes.end(), data, [](std::byte b) { return b ^ std::byte{0x80}; });
  return c;
}

class ByteType {
 public:
  ByteType(Graph& g, DType to) : e_(g), to_(to) {}

  void weights() {
    for (Handle h = 0, end = e_.size(); h < end; h++) {
      const Node n = e_.node(h);
      if (!n.is("DequantizeLinear") || !e_.is_constant(n.inputs[0]) || !can_shift(n)) continue;
      const TensorId q = in_other_type(n.inputs[0]);
      shift(h, q);
    }
    e_.finish();
  }

  void activations() {
    for (Handle h = 0, end = e_.size(); h < end; h++) {
      const Node n = e_.node(h);
      if (!n.is("QuantizeLinear") || !can_shift(n) || e_.is_output(n.outputs[0])) continue;
      const std::vector<Handle> readers = e_.consumers(n.outputs[0]);
      if (!std::all_of(readers.begin(), readers.end(), [&](Handle r) {
            return e_.node(r).is("DequantizeLinear") && e_.node(r).inputs[0] == n.outputs[0] && can_shift(e_.node(r));
          }))
        continue;
      shift(h, n.inputs[0]);
      for (Handle r : readers) shift(r, n.outputs[0]);
      e_.graph.info(n.outputs[0]).dtype = to_;
    }
    e_.finish();
  }

 private:
  // Its integers are of the other type, and its scales and zero points known.
  bool can_shift(const Node& n) const {
    const DType from = e_.info(n.is("QuantizeLinear") ? n.outputs[0] : n.inputs[0]).dtype;
    const std::optional<Shape>& scales = e_.info(n.inputs[1]).shape;
    return is_byte(from) && from != to_ && scales && is_const(*scales) &&
           (!n.has_input(2) || e_.is_constant(n.inputs[2]));
  }

  // The node reads x, and its zero point in the other type.
  void shift(Handle h, TensorId x) {
    const Node n = e_.node(h);
    TensorId zero = kNoTensor;
    if (n.has_input(2)) {
      zero = in_other_type(n.inputs[2]);
    } else {
      std::byte* data = nullptr;
      ConstantPtr c = make_constant(to_, numbers(*e_.info(n.inputs[1]).shape), &data);
      std::fill_n(data, c->bytes.size(), std::byte{0x80});
      zero = e_.add_constant(e_.graph.tensor(n.inputs[0]).name + "_zero_point", c);
    }
    e_.set_inputs(h, {x, n.inputs[1], zero});
    e_.edit(h).attrs.erase("output_dtype");
  }

  TensorId in_other_type(TensorId t) {
    auto [it, fresh] = made_.try_emplace(t, kNoTensor);
    if (fresh) it->second = e_.add_constant(e_.graph.tensor(t).name, shifted(*e_.info(t).constant, to_));
    return it->second;
  }

  Editor e_;
  DType to_;
  std::unordered_map<TensorId, TensorId> made_;
};

class BiasSetter {
 public:
  BiasSetter(Graph& g, BiasRecipe recipe) : e_(g), recipe_(recipe) {}

  std::vector<std::string> run() {
    for (Handle h = 0, end = e_.size(); h < end; h++)
      if (e_.alive(h) && is_product(e_.node(h))) product(h);
    e_.finish();
    return std::move(notes_);
  }

 private:
  struct Place {
    Handle node = Editor::kNone;
    size_t operand = 0;
  };

  // Operand 2, or what is added to a MatMul's result.
  Place place(Handle h) const {
    const Node& n = e_.node(h);
    if (has_bias(n)) return {h, 2};
    if (!n.is("MatMul") || !e_.single_use(n.outputs[0])) return {};
    const Handle next = e_.consumers(n.outputs[0])[0];
    const Node& add = e_.node(next);
    if (!add.is("Add")) return {};
    const size_t operand = add.inputs[0] == n.outputs[0] ? 1 : 0;
    const std::optional<Shape>& shape = e_.info(add.inputs[operand]).shape;
    return shape && shape->size() == 1 ? Place{next, operand} : Place{};
  }

  void product(Handle h) {
    const Node n = e_.node(h);
    const auto x = dequantized_from(e_, n.has_input(0) ? n.inputs[0] : kNoTensor);
    const auto w = dequantized_from(e_, n.has_input(1) ? n.inputs[1] : kNoTensor);
    const Place at = place(h);
    if (!x || !w || at.node == Editor::kNone) return;
    const TensorId bias = e_.node(at.node).inputs[at.operand];
    const auto values = constant_floats(e_, bias);
    if (!values) return;
    if (recipe_ != BiasRecipe::Int32) {
      if (!e_.is_constant(bias))
        e_.set_input(at.node, at.operand,
                     e_.add_constant(e_.graph.tensor(bias).name, make_constant(DType::F32, {size(*values)}, *values)));
      return;
    }
    if (integers_of_bias(e_, bias, *x, *w) != kNoTensor) return;
    const std::string why = to_int32(n, at, *values, *x, *w);
    if (!why.empty()) notes_.push_back(fmt::format("{}: its bias stays fp32, {}", n.label(), why));
  }
  static int64_t size(const std::vector<float>& v) { return static_cast<int64_t>(v.size()); }

  std::string to_int32(const Node& n, const Place& at, const std::vector<float>& values, const Quantized& x,
                       const Quantized& w) {
    const auto sx = constant_floats(e_, x.scale), sw = constant_floats(e_, w.scale);
    if (!sx || sx->size() != 1) return "the scale of its input is not one constant";
    if (!sw) return "the scales of its weight are not constant";
    if (n.is("Gemm") && (n.get_float("alpha", 1.f) != 1 || n.get_float("beta", 1.f) != 1)) return "it is scaled";
    const ConstantPtr weight = e_.info(w.q).constant;
    if (sw->size() > 1 && (!weight || channel_axis(n, weight->dims) != w.axis || n.is("ConvTranspose")))
      return "the scales of its weight do not lie along channels";
    const auto bias = integer_bias(values, (*sx)[0], *sw);
    if (!bias) return "it does not fit int32";
    e_.set_input(at.node, at.operand,
                 dequantized_bias(e_, e_.graph.tensor(e_.node(at.node).inputs[at.operand]).name, *bias));
    return "";
  }

  Editor e_;
  BiasRecipe recipe_;
  std::vector<std::string> notes_;
};

}  // namespace

void settle_marks(Graph& graph) {
  Graph folded = deep_copy(graph);
  try {
    fold_constants(folded, FoldWeights::kTransposed);
    graph = std::move(folded);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Unsupported) throw;  // a constant that only an expansion can compute
  }
  Settler(graph).run();
}

void set_weight_type(Graph& graph, DType to) { ByteType(graph, to).weights(); }

void set_unsigned_activations(Graph& graph) { ByteType(graph, DType::U8).activations(); }

std::vector<std::string> set_bias(Graph& graph, BiasRecipe recipe) { return BiasSetter(graph, recipe).run(); }

}  // namespace ingot
