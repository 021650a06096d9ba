#include "passes/autocast.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "graph/expr.h"
#include "kernels/hooks.h"
#include "passes/constants.h"
#include "passes/editor.h"
#include "passes/quantize_weights.h"

namespace ingot {
namespace {

using Handle = Editor::Handle;

constexpr std::array kPrecisions = {"bf16", "fp16", "int8", "int8-weights", "int4-weights"};
constexpr int64_t kSmallElements = 1024;  // weights below stay f32
constexpr int64_t kBlock = 32;            // numbers of a column that share a scale, in 4 bits
constexpr int64_t kF32 = static_cast<int64_t>(DType::F32);

bool is_ours(const Node& n, const char* op) { return n.is(op) || n.is(op, "ingot"); }

class Autocast {
 public:
  Autocast(Editor& e, const std::string& precision) : e_(e), precision_(precision) {}

  void run() {
    for (Handle h = 0, end = e_.size(); h < end; h++) {
      if (!e_.alive(h)) continue;
      const Node& n = e_.node(h);
      if (is_ours(n, "MatMul"))
        matmul(h);
      else if (is_ours(n, "Conv"))
        conv(h);
      else if (n.is("Gather"))
        gather(h);
      else if (n.is("Gemm"))
        gemm(h);
    }
  }

 private:
  DType half() const {
    return precision_ == "bf16" ? DType::BF16 : precision_ == "fp16" ? DType::F16 : DType::Undefined;
  }

  // Operand i if it is a weight to cast: constant, f32, not small, and of this rank where one is given.
  ConstantPtr weights(const Node& n, size_t i, size_t rank = 0) const {
    if (!n.has_input(i) || n.has("packed")) return nullptr;
    const ConstantPtr& c = e_.info(n.inputs[i]).constant;
    if (!c || c->dtype != DType::F32 || c->elements() < kSmallElements) return nullptr;
    return rank == 0 || c->dims.size() == rank ? c : nullptr;
  }

  // What is made of one constant once, however many nodes read it.
  template <class Make>
  std::vector<TensorId> shared(TensorId t, const std::string& how, const Make& make) {
    auto [it, fresh] = made_.try_emplace({t, how});
    if (fresh)
      for (const auto& [suffix, constant] : make())
        it->second.push_back(constant ? e_.add_constant(e_.graph.tensor(t).name + suffix, constant) : kNoTensor);
    return it->second;
  }

  TensorId as_half(TensorId t) {
    const std::vector<TensorId> out = shared(t, "half", [&] {
      return std::vector<std::pair<std::string, ConstantPtr>>{
          {"/" + precision_, in_half(*e_.info(t).constant, half())}};
    });
    return out[0];
  }

  // The same node of ours with operand 1 in 16 bits.
  void store_half(Handle h) {
    const TensorId narrow = as_half(e_.node(h).inputs[1]);
    if (narrow == kNoTensor) return;
    e_.set_input(h, 1, narrow);
    e_.edit(h).domain = "ingot";
  }

  void matmul(Handle h) {
    const Node n = e_.node(h);
    const ConstantPtr c = weights(n, 1, 2);
    if (!c || n.get_int("quantized", 0) || e_.is_constant(n.inputs[0])) return;
    if (e_.info(n.inputs[0]).dtype != DType::F32) return;
    if (half() != DType::Undefined) return store_half(h);
    if (precision_ == "int8") return integer_matmul(h);
    const bool transposed = n.get_int("transB", 0) != 0;
    const int64_t block = precision_ == "int4-weights" ? kBlock : 0;
    const int64_t axis = (block != 0) != transposed ? 0 : 1;  // along K for blocks, along N for columns
    const auto stored = quantized(n.inputs[1], axis, block);
    if (stored[0] == kNoTensor) return;
    std::vector<TensorId> inputs = {n.inputs[0], stored[0], stored[1], kNoTensor};
    inputs.insert(inputs.end(), n.inputs.begin() + 2, n.inputs.end());
    e_.set_inputs(h, inputs);
    Node& node = e_.edit(h);
    node.domain = "ingot";
    node.attrs["quantized"] = int64_t{1};
    node.attrs["b_axis"] = axis;
    node.attrs["b_block"] = block;
    if (block) node.attrs["a_bits"] = int64_t{16};
  }

  // What fusions/matmul.cpp has not made a MatMul.
  void gemm(Handle h) {
    const Node& n = e_.node(h);
    if (half() != DType::Undefined && weights(n, 1, 2) && e_.info(n.inputs[0]).dtype == DType::F32) store_half(h);
  }

  // Integers and scales of a weight; {kNoTensor} where it cannot be quantized.
  std::vector<TensorId> quantized(TensorId t, int64_t axis, int64_t block) {
    return shared(t, fmt::format("{} {}", axis, block), [&] {
      const QuantizedWeights q = quantize_weights(*e_.info(t).constant, axis, block);
      return std::vector<std::pair<std::string, ConstantPtr>>{{block ? "/i4" : "/i8", q.values}, {"/scale", q.scale}};
    });
  }

  void gather(Handle h) {
    const Node n = e_.node(h);
    const auto& indices = e_.info(n.inputs[1]).shape;
    if (!weights(n, 0, 2) || n.get_int("axis", 0) != 0 || !indices || precision_ == "int8") return;
    const auto shape = e_.info(n.outputs[0]).shape;
    auto rows = [&](TensorId table) {
      Shape out = *indices;
      out.push_back((*e_.info(table).shape)[1]);
      return e_.emit(n, "Gather", {table, n.inputs[1]}, {}, e_.info(table).dtype, out);
    };
    if (half() != DType::Undefined) {
      const TensorId table = as_half(n.inputs[0]);
      if (table != kNoTensor) e_.replace(h, Node{.op = "Cast", .inputs = {rows(table)}, .attrs = {{"to", kF32}}});
      return;
    }
    const auto table = quantized(n.inputs[0], 0, 0);
    if (table[0] == kNoTensor) return;
    const ConstantPtr scale = e_.info(table[1]).constant;
    const TensorId column = e_.add_constant(e_.graph.tensor(table[1]).name, reshaped(scale, {scale->dims[0], 1}));
    const TensorId x = e_.emit(n, "Cast", {rows(table[0])}, {{"to", kF32}}, DType::F32, shape);
    e_.replace(h, Node{.op = "Mul", .inputs = {x, rows(column)}});
  }

  void conv(Handle h) {
    const Node n = e_.node(h);
    const ConstantPtr c = weights(n, 1);
    if (!c || c->dims.size() < 3 || e_.info(n.inputs[0]).dtype != DType::F32) return;
    if (half() != DType::Undefined) return store_half(h);
    if (precision_ == "int8") integer_conv(h);
  }

  // --- dynamic quantization ---

  struct Activation {
    TensorId values, scale, zero;
  };
  Activation dynamic(const Node& n, TensorId a) {
    auto [it, fresh] = activations_.try_emplace(a);
    if (!fresh) return it->second;
    const std::string base = e_.graph.tensor(a).name;
    it->second = {e_.add_value(base + "/u8", DType::U8, e_.info(a).shape),
                  e_.add_value(base + "/scale", DType::F32, Shape{}), e_.add_value(base + "/zero", DType::U8, Shape{})};
    e_.add(Node{.op = "DynamicQuantizeLinear",
                .name = n.name + "/quantize",
                .inputs = {a},
                .outputs = {it->second.values, it->second.scale, it->second.zero},
                .origins = n.origins});
    return it->second;
  }

  // f(x0, x1, ...) -> f(f32(x0) * (x1 * x2), x3, ...) over the integer sum, both scales and the operands of f.
  std::string integer_epilogue(const Node& n, const std::vector<TensorId>& operands, size_t adds) const {
    Expr out;
    out.input_types = {DType::I32, DType::F32, DType::F32};
    for (TensorId t : operands) out.input_types.push_back(e_.info(t).dtype);
    int value = out.call("mul", {out.call("cast_f32", {out.input(0)}), out.call("mul", {out.input(1), out.input(2)})});
    for (size_t i = 0; i < adds; i++) value = out.call("add", {value, out.input(static_cast<int>(3 + i))});
    out.results = {value};
    out.result_types = {DType::F32};
    const std::string text = n.get_string("epilogue", "");
    if (text.empty()) return out.str();
    std::vector<DType> types = {DType::F32};
    std::vector<int> map = {value};
    for (size_t i = adds; i < operands.size(); i++) {
      types.push_back(e_.info(operands[i]).dtype);
      map.push_back(out.input(static_cast<int>(3 + i)));
    }
    const Expr f = parse_expr(text, types);
    out.results = out.inline_expr(f, map);
    out.result_types = f.result_types;
    return out.str();
  }

  void integer_product(Handle h, const std::string& op, const std::vector<TensorId>& b, TensorId b_scale,
                       const std::vector<TensorId>& operands, size_t adds) {
    if (operands.size() + 2 > kernel::kMaxEpilogueOperands) return;
    const Node n = e_.node(h);
    const Activation a = dynamic(n, n.inputs[0]);
    Node with{.op = op, .domain = "ingot", .attrs = n.attrs};
    with.inputs = {a.values, b[0], a.zero, kNoTensor, a.scale, b_scale};
    with.inputs.insert(with.inputs.end(), operands.begin(), operands.end());
    with.attrs["epilogue"] = integer_epilogue(n, operands, adds);
    for (const char* attr : {"transA", "winograd"}) with.attrs.erase(attr);
    e_.replace(h, std::move(with));
  }

  void integer_matmul(Handle h) {
    const Node n = e_.node(h);
    const auto& a = e_.info(n.inputs[0]).shape;
    if (n.get_int("transA", 0) != 0 || !a || a->size() < 2) return;
    const auto b = quantized(n.inputs[1], n.get_int("transB", 0) != 0 ? 0 : 1, 0);
    if (b[0] == kNoTensor) return;
    integer_product(h, "MatMulInteger", b, b[1], {n.inputs.begin() + 2, n.inputs.end()}, 0);
  }

  void integer_conv(Handle h) {
    const Node n = e_.node(h);
    if (n.get_int("group", 1) != 1) return;
    const auto w = quantized(n.inputs[1], 0, 0);
    if (w[0] == kNoTensor) return;
    std::vector<int64_t> dims = {e_.info(w[1]).constant->elements()};
    if (n.get_int("channels_last", 0) == 0) dims.resize(e_.info(n.inputs[1]).constant->dims.size() - 1, 1);
    const TensorId scale =
        e_.add_constant(e_.graph.tensor(w[1]).name + "/channels", reshaped(e_.info(w[1]).constant, dims));
    std::vector<TensorId> operands;
    const bool bias = n.has_input(2);
    if (bias && !e_.is_constant(n.inputs[2])) return;
    if (bias)
      operands.push_back(e_.add_constant(e_.graph.tensor(n.inputs[2]).name + "/channels",
                                         reshaped(e_.info(n.inputs[2]).constant, dims)));
    if (n.inputs.size() > 3) operands.insert(operands.end(), n.inputs.begin() + 3, n.inputs.end());
    integer_product(h, "ConvInteger", w, scale, operands, bias);
  }

  Editor& e_;
  const std::string precision_;
  std::map<std::pair<TensorId, std::string>, std::vector<TensorId>> made_;
  std::map<TensorId, Activation> activations_;
};

void cast(Graph& graph, const std::string& precision) {
  for (Node& n : graph.nodes)
    for (auto& [attr, value] : n.attrs)
      if (auto* body = std::get_if<GraphPtr>(&value)) {
        *body = std::make_shared<Graph>(**body);  // shared with the graph this one was copied from
        cast(**body, precision);
      }
  Editor e(graph);
  Autocast(e, precision).run();
  e.finish();
}

}  // namespace

Graph autocast(const Graph& graph, const std::string& precision) {
  if (std::find(kPrecisions.begin(), kPrecisions.end(), precision) == kPrecisions.end()) {
    std::string known;
    for (const char* p : kPrecisions) known += (known.empty() ? "" : ", ") + std::string(p);
    throw Error(ErrorKind::InvalidInput, fmt::format("there is no precision '{}'", precision), "there are: " + known);
  }
  Graph out = graph;
  cast(out, precision);
  return out;
}

}  // namespace ingot
