// Marks in a graph -> QuantizationFacts: quantize.cpp, read from right to left.
#include <algorithm>
#include <array>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "passes/constants.h"
#include "passes/editor.h"
#include "quantizer/facts.h"
#include "quantizer/form_parts.h"
#include "quantizer/products.h"

namespace ingot {
namespace {

using Handle = Editor::Handle;

constexpr std::array kTypes = {DType::U8, DType::I8, DType::U16, DType::I16, DType::U4, DType::I4};

class Lifter {
 public:
  explicit Lifter(Graph& g) : e_(g) {}

  QuantizationFacts run() {
    facts_.bias = BiasRecipe::Fp32;
    for (Handle h = 0, end = e_.size(); h < end; h++)
      if (e_.alive(h) && e_.node(h).is("Gather")) gathered_rows(h);
    for (Handle h = 0, end = e_.size(); h < end; h++)
      if (e_.alive(h) && e_.node(h).is("DequantizeLinear")) dequantizer(h);
    name_all();
    e_.finish();
    return std::move(facts_);
  }

 private:
  // The facts that a QuantizeLinear's or DequantizeLinear's operands 1 and 2 tell of a tensor of type `dtype`.
  std::optional<TensorFacts> parameters(const Node& n, DType dtype) const {
    if (std::find(kTypes.begin(), kTypes.end(), dtype) == kTypes.end()) return std::nullopt;
    if (!e_.is_constant(n.inputs[1]) || (n.has_input(2) && !e_.is_constant(n.inputs[2]))) return std::nullopt;
    const Constant& scale = *e_.info(n.inputs[1]).constant;
    if (scale.dtype != DType::F32 || !e_.info(n.inputs[0]).shape) return std::nullopt;
    TensorFacts f;
    f.dtype = dtype;
    f.scale.assign(scale.as<float>().begin(), scale.as<float>().end());
    for (size_t i = 0; i < f.scale.size(); i++) {
      const Constant* zero = n.has_input(2) ? e_.info(n.inputs[2]).constant.get() : nullptr;
      f.zero_point.push_back(zero ? integer_at(*zero, i % static_cast<size_t>(zero->elements())) : 0);
    }
    f.block = n.get_int("block_size", 0);
    if (scale.elements() != 1 || f.block) {
      f.axis = n.get_int("axis", 1);
      if (*f.axis < 0) *f.axis += static_cast<int64_t>(e_.info(n.inputs[0]).shape->size());
    }
    return f;
  }

  void dequantizer(Handle h) {
    const Node dq = e_.node(h);
    if (e_.info(dq.outputs[0]).dtype != DType::F32) return;
    if (e_.is_constant(dq.inputs[0])) return constant(h, dq);
    const Node* source = e_.maker(dq.inputs[0]);
    if (!source) return;
    if (source->is("DynamicQuantizeLinear") && dq.inputs == source->outputs)
      return activation(h, source->inputs[0], TensorFacts{.dynamic = true});
    if (source->is("Gather") && e_.is_constant(source->inputs[0]) && e_.single_use(dq.inputs[0]))
      return gathered(h, e_.producer(dq.inputs[0]));
    if (!source->is("QuantizeLinear") || e_.info(source->inputs[0]).dtype != DType::F32) return;
    const DType type = e_.info(dq.inputs[0]).dtype;
    const auto outer = parameters(*source, type), inner = parameters(dq, type);
    if (!outer || !inner || inner->block || outer->scale != inner->scale || outer->zero_point != inner->zero_point ||
        outer->axis != inner->axis)
      return;
    activation(h, source->inputs[0], *inner);
  }

  void activation(Handle h, TensorId x, TensorFacts facts) {
    const TensorId out = e_.node(h).outputs[0];
    auto known = tensors_.find(x);
    if (known != tensors_.end() && (known->second.scale != facts.scale || known->second.dtype != facts.dtype ||
                                    known->second.zero_point != facts.zero_point)) {
      // Rounded in two ways: each has a name of its own.
      x = e_.emit(e_.node(h), "Identity", {x}, {}, DType::F32, e_.info(x).shape);
      known = tensors_.end();
    }
    facts.result = e_.is_output(out) || (known != tensors_.end() && known->second.result);
    if (e_.is_output(out) && (e_.is_output(x) || e_.producer(x) == Editor::kNone)) return;  // both are results
    tensors_[x] = facts;
    read_by_all(out);
    e_.replace_uses(out, x);
    e_.erase(h);
  }

  void read_by_all(TensorId out) {
    for (Handle r : e_.consumers(out))
      for (size_t i = 0; i < e_.node(r).inputs.size(); i++)
        if (e_.node(r).inputs[i] == out) operands_[r].insert(i);
  }

  // The numbers that the integers stand for.
  TensorId floats(const Node& dq, TensorId q, const TensorFacts& f) {
    TensorId& made = floats_[{q, dq.inputs[1]}];
    if (made > 0) return made - 1;
    const Constant& c = *e_.info(q).constant;
    std::byte* data = nullptr;
    ConstantPtr out = make_constant(DType::F32, c.dims, &data);
    dequantize_constant(c, f, reinterpret_cast<float*>(data));
    std::string name = e_.graph.tensor(q).name;
    if (name.ends_with("_quantized")) name.resize(name.size() - std::string("_quantized").size());
    const TensorId t = e_.add_constant(name, std::move(out));
    made = t + 1;
    return t;
  }

  void constant(Handle h, const Node& dq) {
    const TensorId out = dq.outputs[0];
    if (e_.info(dq.inputs[0]).dtype == DType::I32) return bias(h, dq);
    const auto f = parameters(dq, e_.info(dq.inputs[0]).dtype);
    if (!f || e_.is_output(out)) return;
    const TensorId t = floats(dq, dq.inputs[0], *f);
    tensors_[t] = *f;
    read_by_all(out);
    e_.replace_uses(out, t);
    e_.erase(h);
  }

  void bias(Handle h, const Node& dq) {
    const TensorId out = dq.outputs[0];
    const auto values = constant_floats(e_, out);
    if (!values || e_.is_output(out)) return;
    facts_.bias = BiasRecipe::Int32;
    std::string name = e_.graph.tensor(dq.inputs[0]).name;
    if (name.ends_with("_quantized")) name.resize(name.size() - std::string("_quantized").size());
    const std::vector<int64_t> dims = e_.info(dq.inputs[0]).constant->dims;
    e_.replace_uses(out, e_.add_constant(name, make_constant(DType::F32, dims, *values)));
    e_.erase(h);
  }

  // DequantizeLinear(Gather(q, i)) -> Gather(real, i)
  void gathered(Handle h, Handle gather) {
    const Node dq = e_.node(h), old = e_.node(gather);
    const auto f = parameters(dq, e_.info(old.inputs[0]).dtype);
    if (!f || f->axis) return;
    replace_gather(gather, {h}, dq, *f);
  }
  // Cast(Gather(q, i)) * Gather(column of scales, i) -> Gather(real, i)
  void gathered_rows(Handle gather) {
    const Node n = e_.node(gather);
    if (!e_.is_constant(n.inputs[0]) || !is_byte(e_.info(n.inputs[0]).dtype) || n.get_int("axis", 0) != 0) return;
    auto next = [&](TensorId t, const char* op) {
      if (!e_.single_use(t) || !e_.node(e_.consumers(t)[0]).is(op)) return Editor::kNone;
      return e_.consumers(t)[0];
    };
    const Handle cast = next(n.outputs[0], "Cast");
    const Handle mul = cast == Editor::kNone ? cast : next(e_.node(cast).outputs[0], "Mul");
    if (mul == Editor::kNone) return;
    const Node times = e_.node(mul);
    const TensorId other = times.inputs[times.inputs[0] == e_.node(cast).outputs[0] ? 1 : 0];
    const Node* scales = e_.maker(other, "Gather");
    if (!scales || !e_.is_constant(scales->inputs[0]) || scales->inputs[1] != n.inputs[1]) return;
    const Constant& column = *e_.info(scales->inputs[0]).constant;
    if (column.dtype != DType::F32 || column.dims.size() != 2 || column.dims[1] != 1) return;
    TensorFacts f;
    f.dtype = e_.info(n.inputs[0]).dtype;
    f.scale.assign(column.as<float>().begin(), column.as<float>().end());
    f.zero_point.assign(f.scale.size(), 0);
    f.axis = 0;
    Node mark = times;
    mark.inputs = {n.inputs[0], scales->inputs[0]};
    replace_gather(gather, {cast, mul}, mark, f);
  }
  // `mark`: the last of the nodes, with the table's scales as operand 1.
  void replace_gather(Handle gather, const std::vector<Handle>& behind, const Node& mark, const TensorFacts& f) {
    Node n = e_.node(gather);
    const TensorId t = floats(mark, n.inputs[0], f);
    tensors_[t] = f;
    n.inputs[0] = t;
    n.outputs = mark.outputs;
    for (Handle h : behind) e_.erase(h);
    e_.erase(gather);
    operands_[e_.add(std::move(n))].insert(0);
  }

  void name_all() {
    for (const auto& [t, f] : tensors_) facts_.tensors[e_.graph.tensor(t).name] = f;
    for (const auto& [h, operands] : operands_)
      if (e_.alive(h)) facts_.nodes[e_.node(h).name] = {{operands.begin(), operands.end()}};
  }

  Editor e_;
  QuantizationFacts facts_;
  std::map<TensorId, TensorFacts> tensors_;
  std::map<Handle, std::set<size_t>> operands_;
  std::map<std::pair<TensorId, TensorId>, TensorId> floats_;  // by integers and scale; the tensor + 1
};

}  // namespace

QuantizationFacts lift(Graph& graph) { return Lifter(graph).run(); }

}  // namespace ingot
