// QuantizationFacts -> QuantizeLinear / DequantizeLinear in the graph.
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "base/error.h"
#include "passes/editor.h"
#include "quantizer/facts.h"
#include "quantizer/form_parts.h"
#include "quantizer/products.h"

namespace ingot {
namespace {

using Handle = Editor::Handle;

void check(const std::string& name, const TensorFacts& f) {
  integer_range(f.dtype);
  if (f.dynamic) return;
  if (f.scale.empty() || f.scale.size() != f.zero_point.size())
    invalid_input("tensor '{}': {} scales and {} zero points", name, f.scale.size(), f.zero_point.size());
  if (!f.axis && f.scale.size() != 1) invalid_input("tensor '{}': {} scales, but no axis", name, f.scale.size());
  const IntegerRange range = integer_range(f.dtype);
  for (size_t i = 0; i < f.scale.size(); i++) {
    if (!std::isfinite(f.scale[i]) || f.scale[i] <= 0)
      invalid_input("tensor '{}': scale {} is not a positive number", name, f.scale[i]);
    if (f.zero_point[i] < range.least || f.zero_point[i] > range.most)
      invalid_input("tensor '{}': zero point {} does not fit {}", name, f.zero_point[i], ingot::name(f.dtype));
  }
}

// Integers of any of the quantized types from numbers in range.
ConstantPtr pack(DType dtype, std::vector<int64_t> dims, const std::vector<int32_t>& values) {
  std::byte* data = nullptr;
  ConstantPtr c = make_constant(dtype, std::move(dims), &data);
  std::fill_n(data, c->bytes.size(), std::byte{0});
  const auto width = static_cast<size_t>(bits(dtype));
  for (size_t i = 0; i < values.size(); i++) {
    const auto v = static_cast<uint32_t>(values[i]);
    if (width < 8)
      data[i * width / 8] |= static_cast<std::byte>((v & ((1u << width) - 1)) << (i * width % 8));
    else
      for (size_t b = 0; b < width / 8; b++) data[i * width / 8 + b] = static_cast<std::byte>(v >> (8 * b) & 0xff);
  }
  return c;
}

int64_t scales_along(int64_t size, int64_t block) { return block ? (size + block - 1) / block : size; }

// visit(element, scale it takes) for all elements of a constant, in order.
template <class Visit>
void each_element(const std::vector<int64_t>& dims, const TensorFacts& f, const Visit& visit) {
  int64_t outer = 1, size = 1, inner = 1;
  for (size_t d = 0; d < dims.size(); d++) {
    const auto axis = f.axis.value_or(-1);
    (static_cast<int64_t>(d) < axis ? outer : static_cast<int64_t>(d) == axis ? size : inner) *= dims[d];
  }
  const int64_t scales = scales_along(size, f.block);
  size_t i = 0;
  for (int64_t o = 0; o < outer; o++)
    for (int64_t a = 0; a < size; a++) {
      if (!f.block) {
        for (int64_t k = 0; k < inner; k++) visit(i++, static_cast<size_t>(a));
        continue;
      }
      const int64_t first = (o * scales + a / f.block) * inner;
      for (int64_t k = 0; k < inner; k++) visit(i++, static_cast<size_t>(first + k));
    }
}

// The dims of a constant's scales.
std::vector<int64_t> scale_dims(const std::vector<int64_t>& dims, const TensorFacts& f) {
  if (!f.axis) return {};
  const auto axis = static_cast<size_t>(*f.axis);
  if (!f.block) return {dims[axis]};
  std::vector<int64_t> out = dims;
  out[axis] = scales_along(dims[axis], f.block);
  return out;
}

void check_fits(const std::vector<int64_t>& dims, const TensorFacts& f) {
  if (!f.axis) return;
  if (*f.axis < 0 || *f.axis >= static_cast<int64_t>(dims.size()))
    invalid_input("axis {} of a constant of rank {}", *f.axis, dims.size());
  int64_t scales = 1;
  for (int64_t d : scale_dims(dims, f)) scales *= d;
  if (scales != static_cast<int64_t>(f.scale.size()))
    invalid_input("{} scales for a constant of {}, expected {}", f.scale.size(), str(to_shape(dims)), scales);
}

class Quantizer {
 public:
  Quantizer(Graph& graph, const QuantizationFacts& facts) : e_(graph), facts_(facts) {
    for (size_t i = 0; i < graph.tensors.size(); i++) tensors_.emplace(graph.tensors[i].name, static_cast<TensorId>(i));
    for (Handle h = 0; h < e_.size(); h++) nodes_.emplace(e_.node(h).name, h);
  }

  void run() {
    for (const auto& [name, f] : facts_.tensors) {
      if (!tensors_.contains(name)) invalid_input("there is no tensor '{}' to quantize", name);
      check(name, f);
    }
    for (const auto& [name, node] : facts_.nodes) {
      auto it = nodes_.find(name);
      if (it == nodes_.end()) invalid_input("there is no node '{}' to quantize", name);
      quantize_node(it->second, node);
    }
    for (const auto& [name, f] : facts_.tensors) {
      if (f.everywhere) quantize_readers(tensors_.at(name));
      if (f.result || (f.everywhere && facts_.bias == BiasRecipe::Fp32Trailing)) round_result(tensors_.at(name));
    }
    e_.finish();
  }

 private:
  const TensorFacts& facts_of(TensorId t, const Node& reader) const {
    auto it = facts_.tensors.find(e_.graph.tensor(t).name);
    if (it == facts_.tensors.end())
      invalid_input("{}: reads '{}' quantized, but no scale is given for it", reader.label(), e_.graph.tensor(t).name);
    return it->second;
  }

  void quantize_node(Handle h, const NodeFacts& node) {
    const Node before = e_.node(h);
    for (size_t i : node.operands) {
      if (!before.has_input(i)) invalid_input("{}: has no operand {} to quantize", before.label(), i);
      facts_of(before.inputs[i], before);
      if (gathers_rows(before, i))
        gather_integers(h, before.inputs[i]);
      else
        e_.set_input(h, i, dequantized(before.inputs[i]));
    }
    if (facts_.bias == BiasRecipe::Int32) quantize_bias(h, before, node);
  }

  // Rows of a table are looked up as integers:
  //   Gather(DequantizeLinear(q, s)) -> DequantizeLinear(Gather(q), s)             one scale
  //                                  -> Cast(Gather(q)) * Gather(s as a column)    one for each row, zero points 0
  bool gathers_rows(const Node& n, size_t operand) const {
    if (!n.is("Gather") || operand != 0 || !e_.is_constant(n.inputs[0])) return false;
    const TensorFacts& f = facts_of(n.inputs[0], n);
    if (!f.axis) return true;
    return *f.axis == 0 && !f.block && n.get_int("axis", 0) == 0 && e_.info(n.inputs[0]).constant->dims.size() == 2 &&
           std::all_of(f.zero_point.begin(), f.zero_point.end(), [](int32_t z) { return z == 0; });
  }
  void gather_integers(Handle h, TensorId table) {
    const Node old = e_.node(h);
    const TensorId out = old.outputs[0];
    const std::string name = e_.graph.tensor(out).name, table_name = e_.graph.tensor(table).name;
    const std::optional<Shape> shape = e_.info(out).shape;
    const TensorFacts& f = facts_.tensors.at(table_name);
    const TensorId q = integer_table(table);
    Node gather = old;
    gather.inputs[0] = q;
    gather.outputs[0] = e_.add_value(name + "_quantized", f.dtype, shape);
    e_.erase(h);
    Node last{.op = "DequantizeLinear", .name = name + "_DequantizeLinear", .origins = old.origins};
    last.outputs = {out};
    if (f.axis) {
      const auto rows = static_cast<int64_t>(f.scale.size());
      const ConstantPtr column = make_constant(DType::F32, {rows, 1}, f.scale);
      const TensorId scale = e_.emit(old, "Gather", {e_.add_constant(table_name + "_scale", column), old.inputs[1]},
                                     {{"axis", int64_t{0}}}, DType::F32, std::nullopt);
      const TensorId real =
          e_.emit(old, "Cast", {gather.outputs[0]}, {{"to", static_cast<int64_t>(DType::F32)}}, DType::F32, shape);
      last.op = "Mul";
      last.inputs = {real, scale};
    } else {
      const Parameters p = parameters(table);
      last.inputs = {gather.outputs[0], p.scale, p.zero};
    }
    e_.add(std::move(gather));
    e_.add(std::move(last));
  }
  // One for all that gather from it.
  TensorId integer_table(TensorId table) {
    auto& made = tables_[table];
    const std::string name = e_.graph.tensor(table).name;
    if (!made)
      made = e_.add_constant(name + "_quantized", quantize_constant(*e_.info(table).constant, facts_.tensors.at(name)));
    return *made;
  }

  // Every reader of the tensor, except the one that quantizes it, reads it dequantized.
  void quantize_readers(TensorId t) {
    const TensorId dq = dequantized(t);
    const std::vector<Handle> readers = e_.consumers(t);
    for (Handle h : readers) {
      if (e_.node(h).is("QuantizeLinear") && e_.node(h).inputs[0] == t) continue;
      for (size_t i = 0; i < e_.node(h).inputs.size(); i++)
        if (e_.node(h).inputs[i] == t) e_.set_input(h, i, dq);
    }
  }

  // The caller of the model reads it so, too.
  void round_result(TensorId t) {
    if (!e_.is_output(t)) return;
    const TensorId dq = dequantized(t);
    std::vector<std::pair<Handle, size_t>> exact;  // what reads it unrounded goes on to do so
    for (Handle h : e_.consumers(t))
      for (size_t i = 0; i < e_.node(h).inputs.size(); i++)
        if (e_.node(h).inputs[i] == t) exact.emplace_back(h, i);
    e_.replace_uses(t, dq);
    for (auto [h, i] : exact) e_.set_input(h, i, t);
  }

  struct Parameters {
    DType dtype;
    TensorId scale, zero;
  };

  Parameters parameters(TensorId t) {
    const std::string name = e_.graph.tensor(t).name;
    const TensorFacts& f = facts_.tensors.at(name);
    std::vector<int64_t> dims;
    if (const ConstantPtr& c = e_.info(t).constant) {
      check_fits(c->dims, f);
      dims = scale_dims(c->dims, f);
    } else if (f.axis) {
      dims = {static_cast<int64_t>(f.scale.size())};
    }
    const TensorId scale = e_.add_constant(name + "_scale", make_constant(DType::F32, dims, f.scale));
    return {f.dtype, scale, e_.add_constant(name + "_zero_point", pack(f.dtype, dims, f.zero_point))};
  }

  TensorId integers(TensorId t, const Parameters& p) {
    const std::string name = e_.graph.tensor(t).name;
    const TensorFacts& f = facts_.tensors.at(name);
    try {
      if (const ConstantPtr c = e_.info(t).constant)
        return e_.add_constant(name + "_quantized", quantize_constant(*c, f));
    } catch (const Error& error) {
      throw error.at(fmt::format("tensor '{}'", name));
    }
    const TensorId q = e_.add_value(name + "_quantized", p.dtype, e_.info(t).shape);
    Node node{.op = "QuantizeLinear", .name = name + "_QuantizeLinear"};
    node.inputs = {t, p.scale, p.zero};
    node.outputs = {q};
    if (f.axis) node.attrs["axis"] = *f.axis;
    e_.add(std::move(node));
    return q;
  }

  // The tensor rounded to what its facts can say, as fp32.
  TensorId dequantized(TensorId t) {
    if (auto it = made_.find(t); it != made_.end()) return it->second;
    const std::string name = e_.graph.tensor(t).name;
    const TensorFacts& f = facts_.tensors.at(name);
    if (e_.info(t).dtype != DType::F32)
      invalid_input("tensor '{}' is {}, only f32 is quantized", name, ingot::name(e_.info(t).dtype));
    const std::optional<Shape> shape = e_.info(t).shape;
    Node dq{.op = "DequantizeLinear", .name = name + "_DequantizeLinear"};
    if (f.dynamic) {
      Node q{.op = "DynamicQuantizeLinear", .name = name + "_QuantizeLinear"};
      q.inputs = {t};
      q.outputs = {e_.add_value(name + "_quantized", DType::U8, shape),
                   e_.add_value(name + "_scale", DType::F32, Shape{}),
                   e_.add_value(name + "_zero_point", DType::U8, Shape{})};
      dq.inputs = q.outputs;
      e_.add(std::move(q));
    } else {
      const Parameters p = parameters(t);
      dq.inputs = {integers(t, p), p.scale, p.zero};
      if (f.axis) dq.attrs["axis"] = *f.axis;
      if (f.block) dq.attrs["block_size"] = f.block;
    }
    const TensorId out = e_.add_value(name + "_dequantized", DType::F32, shape);
    dq.outputs = {out};
    e_.add(std::move(dq));
    made_.emplace(t, out);
    return out;
  }

  // bias -> DequantizeLinear(round(bias / scale) as int32, scale) with scale = input scale x weight scale. One that
  // does not fit an int32 stays as it is.
  void quantize_bias(Handle h, const Node& n, const NodeFacts& node) {
    const auto read = [&](size_t i) {
      return std::find(node.operands.begin(), node.operands.end(), i) != node.operands.end();
    };
    if (!has_bias(n) || !read(0) || !read(1)) return;
    const ConstantPtr bias = e_.info(n.inputs[2]).constant;
    const ConstantPtr weight = e_.info(n.inputs[1]).constant;
    const TensorFacts &x = facts_of(n.inputs[0], n), &w = facts_of(n.inputs[1], n);
    if (!bias || bias->dtype != DType::F32 || !weight || x.dynamic || x.axis || w.block) return;
    const int64_t channels = output_channels(n, weight->dims);
    if (bias->elements() != channels) return;
    const std::vector<float> values(bias->as<float>().begin(), bias->as<float>().end());
    if (const auto q = integer_bias(values, x.scale[0], w.scale))
      e_.set_input(h, 2, dequantized_bias(e_, e_.graph.tensor(n.inputs[2]).name, *q));
  }

  Editor e_;
  const QuantizationFacts& facts_;
  std::unordered_map<std::string, TensorId> tensors_;
  std::unordered_map<std::string, Handle> nodes_;
  std::unordered_map<TensorId, TensorId> made_;
  std::unordered_map<TensorId, std::optional<TensorId>> tables_;
};

}  // namespace

int32_t integer_at(const Constant& c, size_t i) {
  const auto width = static_cast<size_t>(bits(c.dtype));
  uint32_t v = 0;
  for (size_t b = 0; b < std::max<size_t>(width / 8, 1); b++)
    v |= static_cast<uint32_t>(c.bytes[i * width / 8 + b]) << (8 * b);
  if (width < 8) v = v >> (i * width % 8) & ((1u << width) - 1);
  const uint32_t sign = is_signed(c.dtype) && width < 32 ? 1u << (width - 1) : 0;
  return static_cast<int32_t>((v ^ sign) - sign);
}

std::optional<BiasRecipe> bias_recipe_from_name(std::string_view name) {
  if (name == "int32") return BiasRecipe::Int32;
  if (name == "fp32") return BiasRecipe::Fp32;
  if (name == "fp32-trailing" || name == "fp32_trailing") return BiasRecipe::Fp32Trailing;
  return std::nullopt;
}

IntegerRange integer_range(DType t) {
  switch (t) {
    case DType::U4:
    case DType::U8:
    case DType::U16:
      return {0, (1 << bits(t)) - 1};
    case DType::I4:
    case DType::I8:
    case DType::I16:
      return {-(1 << (bits(t) - 1)), (1 << (bits(t) - 1)) - 1};
    default:
      invalid_input("{} is not a type to quantize to; u8, i8, u16, i16, u4 and i4 are", name(t));
  }
}

ConstantPtr quantize_constant(const Constant& c, const TensorFacts& f) {
  check_fits(c.dims, f);
  if (c.dtype != DType::F32) invalid_input("is {}, only f32 is quantized", name(c.dtype));
  const IntegerRange range = integer_range(f.dtype);
  const auto least = static_cast<float>(range.least), most = static_cast<float>(range.most);
  const auto values = c.as<float>();
  auto quantized = [&](size_t i, size_t s) {
    if (!std::isfinite(values[i])) invalid_input("holds {}, which cannot be quantized", values[i]);
    return std::clamp(std::nearbyint(values[i] / f.scale[s]) + static_cast<float>(f.zero_point[s]), least, most);
  };
  if (is_byte(f.dtype)) {
    std::byte* data = nullptr;
    ConstantPtr out = make_constant(f.dtype, c.dims, &data);
    each_element(c.dims, f,
                 [&](size_t i, size_t s) { data[i] = static_cast<std::byte>(static_cast<int32_t>(quantized(i, s))); });
    return out;
  }
  std::vector<int32_t> out(values.size());
  each_element(c.dims, f, [&](size_t i, size_t s) { out[i] = static_cast<int32_t>(quantized(i, s)); });
  return pack(f.dtype, c.dims, out);
}

void dequantize_constant(const Constant& c, const TensorFacts& f, float* out) {
  check_fits(c.dims, f);
  auto write = [&](const auto& integer) {
    each_element(c.dims, f,
                 [&](size_t i, size_t s) { out[i] = static_cast<float>(integer(i) - f.zero_point[s]) * f.scale[s]; });
  };
  if (c.dtype == DType::I8)
    write([values = c.as<int8_t>()](size_t i) -> int32_t { return values[i]; });
  else
    write([&](size_t i) { return integer_at(c, i); });
}

void quantize(Graph& graph, const QuantizationFacts& facts) { Quantizer(graph, facts).run(); }

}  // namespace ingot
