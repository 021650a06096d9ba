// Constants in fewer bits than f32 are moved and indexed as they are, and widened afterwards: a table of embeddings
// stays narrow, and only the rows read are widened.
#include "ops/via_f32.h"
#include "passes/constants.h"
#include "passes/simplify.h"

namespace ingot {
namespace {

using Handle = Editor::Handle;

// f(Cast(c), ...) -> Cast(f(c, ...)) for f that moves elements of its first operand.
bool moved_before_cast(Editor& e, Handle h) {
  const Node n = e.node(h);
  const Node* cast = e.maker(n.inputs[0], "Cast");
  if (!cast || !e.is_constant(cast->inputs[0]) || !is_half(e.info(cast->inputs[0]).dtype)) return false;
  if (e.info(n.inputs[0]).dtype != DType::F32 || n.outputs.size() != 1) return false;
  std::vector<TensorId> inputs = n.inputs;
  inputs[0] = cast->inputs[0];
  const auto shape = e.info(n.outputs[0]).shape;
  const TensorId y = e.emit(n, n.op, inputs, n.attrs, e.info(inputs[0]).dtype, shape);
  e.replace(h, Node{.op = "Cast", .inputs = {y}, .attrs = {{"to", static_cast<int64_t>(DType::F32)}}});
  return true;
}

// 4-bit numbers cannot be indexed: the same as bytes.
ConstantPtr as_bytes(const ConstantPtr& c) {
  if (bits(c->dtype) != 4) return c;
  const bool is_signed = c->dtype == DType::I4;
  std::vector<uint8_t> out(static_cast<size_t>(c->elements()));
  for (size_t i = 0; i < out.size(); i++) {
    const auto byte = static_cast<uint8_t>(c->bytes[i / 2]);
    const auto number = static_cast<uint8_t>(i % 2 ? byte >> 4 : byte & 15);
    out[i] = is_signed && number > 7 ? static_cast<uint8_t>(number | 0xf0) : number;
  }
  return make_constant(is_signed ? DType::I8 : DType::U8, c->dims, out);
}

struct Table {
  TensorId values, scale, zero;
  int64_t axis, block;
};

// A DequantizeLinear of a constant matrix whose scales differ along an axis.
std::optional<Table> read_table(const Editor& e, TensorId t) {
  const Node* n = e.maker(t, "DequantizeLinear");
  if (!n || e.info(t).dtype != DType::F32) return std::nullopt;
  const int64_t axis = n->get_int("axis", 1);
  const Table out{n->inputs[0], n->inputs[1], n->has_input(2) ? n->inputs[2] : kNoTensor, axis < 0 ? axis + 2 : axis,
                  n->get_int("block_size", 0)};
  const bool constant =
      e.is_constant(out.values) && e.is_constant(out.scale) && (out.zero == kNoTensor || e.is_constant(out.zero));
  if (!constant || e.info(out.values).constant->dims.size() != 2 || e.info(out.scale).dtype != DType::F32)
    return std::nullopt;
  const int width = bits(e.info(out.values).dtype);
  return is_integer(e.info(out.values).dtype) && (width == 8 || width == 4) ? std::optional(out) : std::nullopt;
}

// Gather(DequantizeLinear(x, s, z), i) -> DequantizeLinear(Gather(x, i), Gather(s, i), Gather(z, i)) for rows of a
// table; a scale for each row is spelt out as a product, as it has more axes than DequantizeLinear takes.
bool gathered_before(Editor& e, Handle h) {
  const Node n = e.node(h);
  const auto table = read_table(e, n.inputs[0]);
  const auto& indices = e.info(n.inputs[1]).shape;
  const auto shape = e.info(n.outputs[0]).shape;
  if (!table || !indices || !shape || n.get_int("axis", 0) != 0) return false;
  const bool per_row = table->block == 0 && table->axis == 0;
  if (e.info(table->scale).constant->elements() == 1 || (table->block != 0 && table->axis == 0)) return false;
  const auto rank = static_cast<int64_t>(indices->size());
  const Shape lead = *indices;
  auto gather = [&](TensorId t, std::vector<int64_t> dims) {
    const ConstantPtr c = reshaped(as_bytes(e.info(t).constant), dims);
    const TensorId from = e.add_constant(e.graph.tensor(t).name + "/rows", c);
    Shape out = lead;
    out.push_back(dims.back());
    return e.emit(n, "Gather", {from, n.inputs[1]}, {{"axis", int64_t{0}}}, c->dtype, out);
  };
  const std::vector<int64_t> dims = e.info(table->values).constant->dims;
  TensorId x = gather(table->values, dims);
  if (!per_row) {
    Node after{.op = "DequantizeLinear", .inputs = {x, table->scale}, .attrs = {{"axis", rank}}};
    if (table->block) after.attrs["block_size"] = table->block;
    for (TensorId t : {table->scale, table->zero}) {
      if (t == kNoTensor) continue;
      const TensorId from = table->block ? gather(t, e.info(t).constant->dims)
                                         : e.add_constant(e.graph.tensor(t).name, as_bytes(e.info(t).constant));
      if (t == table->scale)
        after.inputs[1] = from;
      else
        after.inputs.push_back(from);
    }
    e.replace(h, std::move(after));
    return true;
  }
  auto to_f32 = [&](TensorId t) {
    return e.emit(n, "Cast", {t}, {{"to", static_cast<int64_t>(DType::F32)}}, DType::F32, e.info(t).shape);
  };
  x = to_f32(x);
  if (table->zero != kNoTensor)
    x = e.emit(n, "Sub", {x, to_f32(gather(table->zero, {dims[0], 1}))}, {}, DType::F32, shape);
  e.replace(h, Node{.op = "Mul", .inputs = {x, gather(table->scale, {dims[0], 1})}});
  return true;
}

constexpr SimplifyRule kRules[] = {
    {"Gather", moved_before_cast},
    {"Transpose", moved_before_cast},
    {"Gather", gathered_before},
};

}  // namespace

std::span<const SimplifyRule> simplify_narrow_rules() { return kRules; }

}  // namespace ingot
