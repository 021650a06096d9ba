// Operators by older ones, for opsets that do not have them, or not with these attributes.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "ops/via_f32.h"
#include "passes/constants.h"
#include "writer/downgrade.h"

namespace ingot {
namespace {

TensorId number(Expander& e, double value, TensorId like) { return e.scalar(value, e.dtype(like)); }

std::vector<int64_t> axes_from(Expander& e, TensorId x, int64_t first) {
  std::vector<int64_t> axes(static_cast<size_t>(e.rank(x) - e.axis(first, e.rank(x))));
  std::iota(axes.begin(), axes.end(), -static_cast<int64_t>(axes.size()));
  return axes;
}

TensorId mean(Expander& e, TensorId x, const std::vector<int64_t>& axes) {
  return e.reduce("ReduceMean", x, axes, true);
}

// The type that a normalization is computed in.
TensorId stashed(Expander& e, TensorId x) {
  const auto type = static_cast<DType>(e.node.get_int("stash_type", 1));
  return is_half(e.dtype(x)) ? e.cast(x, type) : x;
}

// sqrt( mean(d^2) + epsilon )
TensorId root_mean_square(Expander& e, TensorId d, const std::vector<int64_t>& axes) {
  const TensorId squares = mean(e, e.emit("Pow", {d, number(e, 2, d)}), axes);
  return e.emit("Sqrt", {e.emit("Add", {squares, number(e, e.node.get_float("epsilon", 1e-5f), d)})});
}

// (x - mean) / deviation * scale + bias
void layer_norm(Expander& e) {
  const DType type = e.dtype(e.in(0));
  const TensorId x = stashed(e, e.in(0));
  const auto axes = axes_from(e, x, e.node.get_int("axis", -1));
  const TensorId average = mean(e, x, axes), d = e.emit("Sub", {x, average});
  const TensorId deviation = root_mean_square(e, d, axes);
  TensorId y = e.emit("Mul", {e.cast(e.emit("Div", {d, deviation}), type), e.in(1)});
  if (e.has(2)) y = e.emit("Add", {y, e.in(2)});
  e.result(0, y);
  e.result(1, average);
  if (e.node.has_output(2)) e.result(2, e.emit("Reciprocal", {deviation}));
}

// x / sqrt(mean(x^2) + epsilon) * scale
void rms_norm(Expander& e) {
  const TensorId x = stashed(e, e.in(0));
  const auto axes = axes_from(e, x, e.node.get_int("axis", -1));
  const TensorId normal = e.emit("Div", {x, root_mean_square(e, x, axes)});
  e.result(0, e.emit("Mul", {e.cast(normal, e.dtype(e.in(0))), e.in(1)}));
}

TensorId filled_channels(Expander& e, int64_t count, double value, DType type) {
  return e.emit("Expand", {e.scalar(value, type), e.ints({count})});
}

// Groups of channels as channels of an InstanceNormalization; then scale and bias for each channel.
void group_norm(Expander& e) {
  const DType type = e.dtype(e.in(0));
  const TensorId x = stashed(e, e.in(0));
  const int64_t groups = e.node.need_int("num_groups"), rank = e.rank(x);
  const TensorId rows = e.reshape(x, {e.size(x, 0), groups, -1});
  const DType inner = e.dtype(rows);
  const TensorId ones = filled_channels(e, groups, 1, inner), zeros = filled_channels(e, groups, 0, inner);
  const TensorId normal =
      e.emit("InstanceNormalization", {rows, ones, zeros}, {{"epsilon", e.node.get_float("epsilon", 1e-5f)}});
  const TensorId back = e.cast(e.emit("Reshape", {normal, e.emit("Shape", {x})}), type);
  std::vector<int64_t> behind(static_cast<size_t>(rank - 2));
  std::iota(behind.begin(), behind.end(), 1);
  const TensorId scaled = e.emit("Mul", {back, e.unsqueeze(e.in(1), behind)});
  e.result(0, e.emit("Add", {scaled, e.unsqueeze(e.in(2), behind)}));
}

void gelu(Expander& e) {
  const TensorId x = e.in(0);
  auto c = [&](double v) { return number(e, v, x); };
  TensorId inner = kNoTensor;
  if (e.node.get_string("approximate", "none") == "tanh") {
    const TensorId cubed = e.emit("Mul", {e.emit("Pow", {x, c(3)}), c(0.044715)});
    inner = e.emit("Tanh", {e.emit("Mul", {e.emit("Add", {x, cubed}), c(std::sqrt(2 / M_PI))})});
  } else {
    inner = e.emit("Erf", {e.emit("Div", {x, c(std::sqrt(2.0))})});
  }
  e.result(0, e.emit("Mul", {e.emit("Mul", {x, e.emit("Add", {inner, c(1)})}), c(0.5)}));
}

void mish(Expander& e) { e.result(0, e.emit("Mul", {e.in(0), e.emit("Tanh", {e.emit("Softplus", {e.in(0)})})})); }

void hard_swish(Expander& e) {
  const TensorId gate = e.emit("HardSigmoid", {e.in(0)}, {{"alpha", 1.0f / 6}, {"beta", 0.5f}});
  e.result(0, e.emit("Mul", {e.in(0), gate}));
}

// x sigmoid(alpha x), with a second operand times that
void swish(Expander& e) {
  const float alpha = e.node.get_float("alpha", 1);
  const TensorId x = e.in(0), inner = alpha == 1 ? x : e.emit("Mul", {x, number(e, alpha, x)});
  const TensorId y = e.emit("Mul", {x, e.emit("Sigmoid", {inner})});
  e.result(0, e.has(1) ? e.emit("Mul", {y, e.in(1)}) : y);
}

// max(0, x) + min(0, alpha (exp(x / alpha) - 1))
void celu(Expander& e) {
  const TensorId x = e.in(0), alpha = number(e, e.node.get_float("alpha", 1), x), zero = number(e, 0, x);
  const TensorId grown = e.emit("Sub", {e.emit("Exp", {e.emit("Div", {x, alpha})}), number(e, 1, x)});
  const TensorId below = e.emit("Min", {zero, e.emit("Mul", {alpha, grown})});
  e.result(0, e.emit("Add", {e.emit("Max", {zero, x}), below}));
}

void or_equal(Expander& e) {
  const std::string strictly = e.node.op.substr(0, e.node.op.find("OrEqual"));
  const TensorId strict = e.emit(strictly, {e.in(0), e.in(1)}), equal = e.emit("Equal", {e.in(0), e.in(1)});
  e.result(0, e.emit("Or", {strict, equal}));
}

// The remainder of the truncated quotient, moved to the side of y where it has the other sign.
void floor_mod(Expander& e) {
  const TensorId y = e.in(1), r = e.emit("Mod", {e.in(0), y}, {{"fmod", int64_t{1}}});
  const TensorId other_side =
      e.emit("Less", {e.emit("Mul", {e.emit("Sign", {r}), e.emit("Sign", {y})}), number(e, 0, r)});
  e.result(0, e.emit("Where", {other_side, e.emit("Add", {r, y}), r}));
}

void cast_like(Expander& e) {
  e.result(0, e.emit("Cast", {e.in(0)}, {{"to", static_cast<int64_t>(e.dtype(e.in(1)))}}));
}

// Where the column is at most (at least, for the lower part) the row and k.
void trilu(Expander& e) {
  const TensorId x = e.in(0);
  const TensorId row = e.unsqueeze(e.count_up(e.size(x, -2)), {1}), column = e.count_up(e.size(x, -1));
  const TensorId edge = e.has(1) ? e.emit("Add", {row, e.in(1)}) : row;
  const bool upper = e.node.get_int("upper", 1) != 0;
  const TensorId outside = e.emit(upper ? "Less" : "Greater", {column, edge});
  e.result(0, e.emit("Where", {outside, number(e, 0, x), x}));
}

void part_of_shape(Expander& e) {
  const TensorId all = e.emit("Shape", {e.in(0)});
  e.result(0, e.slice(all, 0, e.node.get_int("start", 0), e.node.get_int("end", INT64_MAX)));
}

void constant_of_shape(Expander& e) {
  ConstantPtr value = e.node.get_constant("value");
  if (!value) value = filled(0);
  e.result(0, e.emit("Expand", {e.constant(reshaped(value, {})), e.in(0)}));
}

void identity(Expander& e) { e.result(0, e.emit("Identity", {e.in(0)})); }

// Sizes of the parts, the last ones smaller.
void uneven_split(Expander& e) {
  const auto count = static_cast<int64_t>(e.node.outputs.size());
  const int64_t axis = e.node.get_int("axis", 0), size = e.number(e.in(0), axis), part = (size + count - 1) / count;
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < count; i++) sizes.push_back(std::clamp<int64_t>(size - i * part, 0, part));
  const auto parts = e.emit_many("Split", {e.in(0), e.ints(sizes)}, static_cast<size_t>(count), {{"axis", axis}});
  for (size_t i = 0; i < parts.size(); i++) e.result(i, parts[i]);
}

// `given` at the places of `axes` in a list of `rest`.
TensorId spread(Expander& e, TensorId rest, TensorId given, const std::vector<int64_t>& places) {
  return e.emit("ScatterElements", {rest, e.ints(places), given});
}

std::vector<int64_t> known_axes(Expander& e, size_t operand, int64_t rank) {
  const auto axes = integer_values(e.info(e.in(operand)));
  if (!axes) e.fail(ErrorKind::Unsupported, "its axes are not constant");
  std::vector<int64_t> out;
  for (int64_t a : *axes) out.push_back(e.axis(a, rank));
  return out;
}

void pad_all_axes(Expander& e) {
  const int64_t rank = e.rank(e.in(0));
  std::vector<int64_t> places = known_axes(e, 3, rank);
  const size_t count = places.size();
  for (size_t i = 0; i < count; i++) places.push_back(places[i] + rank);
  std::vector<int64_t> none(static_cast<size_t>(2 * rank));
  TensorId pads = kNoTensor;
  if (const auto given = integer_values(e.info(e.in(1))); given && given->size() == places.size()) {
    for (size_t i = 0; i < places.size(); i++) none[static_cast<size_t>(places[i])] = (*given)[i];
    pads = e.ints(none);
  } else {
    pads = spread(e, e.ints(none), e.cast(e.in(1), DType::I64), places);
  }
  e.result(0, e.emit("Pad", {e.in(0), pads, e.in_or_none(2)}, e.node.attrs));
}

TensorId floats(Expander& e, const std::vector<float>& values) {
  return e.constant(make_constant(DType::F32, {static_cast<int64_t>(values.size())}, values), "scales");
}

// Scales or sizes for all axes; in opset 11 operands that are not meant are empty.
void resize_all_axes(Expander& e) {
  enum Operand : size_t { kX, kRoi, kScales, kSizes };
  const int64_t rank = e.rank(e.in(kX));
  std::vector<TensorId> in = {e.in(kX), e.in_or_none(kRoi), e.in_or_none(kScales), e.in_or_none(kSizes)};
  std::map<std::string, Attribute> attrs = e.node.attrs;
  if (e.node.has("axes")) {
    if (in[kRoi] != kNoTensor) e.fail(ErrorKind::Unsupported, "a roi for some axes is not served");
    if (e.node.get_string("keep_aspect_ratio_policy", "stretch") != "stretch")
      e.fail(ErrorKind::Unsupported, "keep_aspect_ratio_policy is newer than the opset");
    std::vector<int64_t> places;
    for (int64_t a : e.node.get_ints("axes")) places.push_back(e.axis(a, rank));
    const auto all = static_cast<size_t>(rank);
    if (in[kScales] != kNoTensor) in[kScales] = spread(e, floats(e, std::vector<float>(all, 1)), in[kScales], places);
    if (in[kSizes] != kNoTensor) in[kSizes] = spread(e, e.emit("Shape", {in[kX]}), in[kSizes], places);
    attrs.erase("axes");
  }
  for (size_t i : {kRoi, kScales})
    if (in[i] == kNoTensor) in[i] = floats(e, {});
  e.result(0, e.emit("Resize", in, attrs));
}

// Batches in front: turned around, and back.
void recurrent_layout(Expander& e) {
  std::vector<TensorId> in = e.node.inputs;
  const size_t states[] = {5, 6};
  in[0] = e.transpose(in[0], {1, 0, 2});
  for (size_t i : states)
    if (e.has(i)) in[i] = e.transpose(in[i], {1, 0, 2});
  Node turned = e.node;
  turned.attrs["layout"] = int64_t{0};
  const std::vector<TensorId> out = e.emit_copy(turned, in);
  for (size_t i = 0; i < out.size(); i++)
    if (out[i] != kNoTensor) e.result(i, i == 0 ? e.transpose(out[0], {2, 0, 1, 3}) : e.transpose(out[i], {1, 0, 2}));
}

// softmax over an axis that is moved to the end
void softmax_by_transpose(Expander& e) {
  const int64_t rank = e.rank(e.in(0)), axis = e.axis(e.node.get_int("axis", -1), rank);
  std::vector<int64_t> perm(static_cast<size_t>(rank));
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[static_cast<size_t>(axis)], perm.back());
  const TensorId y = e.emit(e.node.op, {e.transpose(e.in(0), perm)}, {{"axis", int64_t{-1}}});
  e.result(0, e.transpose(y, perm));
}

// 1 where a uniform number is below the probability
void bernoulli(Expander& e) {
  std::map<std::string, Attribute> attrs = {{"dtype", static_cast<int64_t>(DType::F32)}};
  if (e.node.has("seed")) attrs["seed"] = e.node.get_float("seed", 0);
  const TensorId uniform = e.emit("RandomUniformLike", {e.in(0)}, attrs);
  const TensorId below = e.emit("Less", {uniform, e.cast(e.in(0), DType::F32)});
  const auto type = static_cast<DType>(e.node.get_int("dtype", static_cast<int64_t>(e.dtype(e.in(0)))));
  e.result(0, e.cast(below, type));
}

// --- quantization

// A constant of less than 8 bits, an element in each byte.
TensorId in_bytes(Expander& e, TensorId t) {
  const DType type = e.dtype(t);
  if (bits(type) >= 8 || !is_integer(type)) return t;
  const ConstantPtr c = e.info(t).constant;
  if (!c) e.fail(ErrorKind::Unsupported, "'{}' values that are not constant are newer than the opset", name(type));
  const int width = bits(type), mask = (1 << width) - 1, half = is_signed(type) ? 1 << (width - 1) : 0;
  std::vector<int8_t> values;
  for (size_t i = 0; i < static_cast<size_t>(c->elements()); i++) {
    const int bit = static_cast<int>(i * static_cast<size_t>(width) % 8);
    const int v = static_cast<int>(c->bytes[i * static_cast<size_t>(width) / 8]) >> bit & mask;
    values.push_back(static_cast<int8_t>((v ^ half) - half));
  }
  return e.constant(make_constant(is_signed(type) ? DType::I8 : DType::U8, c->dims, values), "bytes");
}

// Scales or zero points of x as a tensor that broadcasts to it.
TensorId parameter(Expander& e, TensorId t, TensorId x) {
  t = e.cast(in_bytes(e, t), DType::F32);
  const int64_t rank = e.rank(x), block = e.node.get_int("block_size", 0);
  if (e.rank(t) == 0 || (e.rank(t) == 1 && e.shape(t)[0].is(1))) return e.rank(t) == 0 ? t : e.squeeze(t, {0});
  const int64_t axis = e.axis(e.node.get_int("axis", 1), rank);
  if (!block) {
    std::vector<int64_t> behind(static_cast<size_t>(rank - 1 - axis));
    std::iota(behind.begin(), behind.end(), 1);
    return e.unsqueeze(t, behind);
  }
  // [..., n, ...] -> [..., n, 1, ...] -> [..., n, block, ...] -> [..., n block, ...]
  std::vector<Size> repeated;
  for (int64_t d = 0; d < rank; d++) repeated.push_back(e.size(t, d));
  std::vector<Size> merged = repeated;
  merged[static_cast<size_t>(axis)] = merged[static_cast<size_t>(axis)] * block;
  repeated.insert(repeated.begin() + axis + 1, Size(block));
  const TensorId wide = e.reshape(e.emit("Expand", {e.unsqueeze(t, {axis + 1}), e.sizes(repeated)}), merged);
  return e.slice(wide, axis, 0, e.size(x, axis));
}

// Where only types are newer, the operator itself in the older ones; else  f32(x - z) * s
void dequantize(Expander& e) {
  const TensorId x = in_bytes(e, e.in(0)), result = e.node.outputs[0];
  const DType to = e.dtype(result);
  const bool bytes = is_byte(e.dtype(x)), i32 = e.dtype(x) == DType::I32 && !e.has(2);
  const bool types_differ = x != e.in(0) || e.dtype(e.in(1)) != DType::F32 || to != DType::F32;
  if ((bytes || i32) && !e.node.get_int("block_size", 0) && types_differ) {
    const TensorId zero = e.has(2) ? in_bytes(e, e.in(2)) : kNoTensor;
    std::map<std::string, Attribute> attrs;
    if (e.rank(e.in(1)) > 0) attrs["axis"] = e.node.get_int("axis", 1);
    e.result(0, e.cast(e.emit("DequantizeLinear", {x, e.cast(e.in(1), DType::F32), zero}, attrs), to));
    return;
  }
  TensorId real = e.cast(x, DType::F32);
  if (e.has(2)) real = e.emit("Sub", {real, parameter(e, e.in(2), x)});
  e.result(0, e.cast(e.emit("Mul", {real, parameter(e, e.in(1), x)}), to));
}

// saturate( round( x / s ) + z )
void quantize(Expander& e) {
  const TensorId x = e.cast(e.in(0), DType::F32);
  const DType to = e.dtype(e.node.outputs[0]);
  const bool types_differ = x != e.in(0) || e.dtype(e.in(1)) != DType::F32 || !e.has(2);
  if (is_byte(to) && !e.node.get_int("block_size", 0) && types_differ) {
    TensorId zero = e.in_or_none(2);
    if (zero == kNoTensor) {
      zero = e.scalar(0, to);
      if (e.rank(e.in(1)) == 1) zero = e.emit("Expand", {zero, e.sizes({e.size(e.in(1), 0)})});
    }
    std::map<std::string, Attribute> attrs;
    if (e.rank(e.in(1)) > 0) attrs["axis"] = e.node.get_int("axis", 1);
    e.result(0, e.emit("QuantizeLinear", {x, e.cast(e.in(1), DType::F32), zero}, attrs));
    return;
  }
  if (!is_integer(to) || bits(to) < 8)
    e.fail(ErrorKind::Unsupported, "{} as values that are not constant is newer than the opset", name(to));
  const double values = std::ldexp(1.0, bits(to)), low = is_signed(to) ? -values / 2 : 0;
  TensorId q = e.emit("Round", {e.emit("Div", {x, parameter(e, e.in(1), x)})});
  if (e.has(2)) q = e.emit("Add", {q, parameter(e, e.in(2), x)});
  const TensorId clipped = e.emit("Clip", {q, e.scalar(low, DType::F32), e.scalar(low + values - 1, DType::F32)});
  e.result(0, e.cast(clipped, to));
}

struct Formula {
  const char* op;
  ExpandFn expand;
  bool (*helps)(const OlderNode&) = nullptr;  // absent: always
};

bool has_axes_operand(const OlderNode& o) { return o.node.has_input(3) && o.opset < 18; }
bool has_no_axes(const OlderNode& o) {
  return o.node.get_int("noop_with_empty_axes", 0) &&
         (!o.node.has_input(1) ||
          (o.operand(1)->shape && o.operand(1)->shape->size() == 1 && (*o.operand(1)->shape)[0].is(0)));
}
bool is_partial(const OlderNode& o) { return o.node.has("start") || o.node.has("end"); }
bool is_uneven(const OlderNode& o) { return !o.node.has_input(1) && o.node.has("num_outputs"); }
bool is_batch_first(const OlderNode& o) { return o.node.get_int("layout", 0) == 1; }
bool resizes_some(const OlderNode& o) {
  return o.node.has("axes") || (o.opset < 13 && (!o.node.has_input(1) || !o.node.has_input(2)));
}
bool is_other_axis(const OlderNode& o) {
  const auto rank = o.rank(0);
  const int64_t axis = o.node.get_int("axis", -1);
  return rank && axis != -1 && axis != *rank - 1;
}
bool is_float_mod(const OlderNode& o) { return !o.node.get_int("fmod", 0) && is_float(o.operand(0)->dtype); }

const Formula kFormulas[] = {
    {"LayerNormalization", layer_norm},
    {"RMSNormalization", rms_norm},
    {"GroupNormalization", group_norm},
    {"Gelu", gelu},
    {"Mish", mish},
    {"HardSwish", hard_swish},
    {"Swish", swish},
    {"SwiGLU", swish},
    {"Celu", celu},
    {"GreaterOrEqual", or_equal},
    {"LessOrEqual", or_equal},
    {"Mod", floor_mod, is_float_mod},
    {"CastLike", cast_like},
    {"Trilu", trilu},
    {"Shape", part_of_shape, is_partial},
    {"ConstantOfShape", constant_of_shape},
    {"Split", uneven_split, is_uneven},
    {"Pad", pad_all_axes, has_axes_operand},
    {"Resize", resize_all_axes, resizes_some},
    {"LSTM", recurrent_layout, is_batch_first},
    {"GRU", recurrent_layout, is_batch_first},
    {"RNN", recurrent_layout, is_batch_first},
    {"Softmax", softmax_by_transpose, is_other_axis},
    {"LogSoftmax", softmax_by_transpose, is_other_axis},
    {"Hardmax", softmax_by_transpose, is_other_axis},
    {"Bernoulli", bernoulli},
    {"DequantizeLinear", dequantize},
    {"QuantizeLinear", quantize},
};

}  // namespace

ExpandFn find_formula(const OlderNode& older) {
  if (older.node.op.starts_with("Reduce") && has_no_axes(older)) return identity;
  for (const Formula& f : kFormulas)
    if (older.node.op == f.op && (!f.helps || f.helps(older))) return f.expand;
  return nullptr;
}

}  // namespace ingot
