// com.microsoft.MatMulNBits:  Y = A B^T + bias,  B[n][k] = (q[n][k] - zero[n][k / block]) * scale[n][k / block].
// q is bytes [N, blocks, block * bits / 8], the first number in the low bits; zero points lie alike row by row,
// or floats; without them the middle of the range. Becomes ingot.MatMul with B as it is stored (ops/matmul.cpp), except
// that numbers of 2 bits are stored in 4.
#include "extractors/rewriter.h"
#include "kernels/half.h"

namespace ingot {
namespace {

struct Shape2 {
  int64_t n, k, bits, block, blocks;
};

int64_t positive(const Rewriter& r, const char* attr) {
  const int64_t v = r.node.need_int(attr);
  if (v <= 0 || v > int64_t{1} << 31) r.fail(ErrorKind::InvalidModel, "attribute '{}' is {}", attr, v);
  return v;
}

Shape2 read_shape(const Rewriter& r) {
  Shape2 s{positive(r, "N"), positive(r, "K"), r.node.get_int("bits", 4), positive(r, "block_size"), 0};
  if (s.bits != 2 && s.bits != 4 && s.bits != 8)
    r.fail(ErrorKind::Unsupported, "{} bits are not supported, 2, 4 and 8 are", s.bits);
  if (s.block < 16 || (s.block & (s.block - 1)) != 0)
    r.fail(ErrorKind::InvalidModel, "block_size is {}, expected a power of two from 16 on", s.block);
  s.blocks = (s.k + s.block - 1) / s.block;
  return s;
}

void require_bytes(const Rewriter& r, const Constant& c, int64_t count, const char* what) {
  if (c.dtype != DType::U8 || c.elements() != count)
    r.fail(ErrorKind::InvalidModel, "{} is {} of {} elements, expected {} of u8", what, name(c.dtype), c.elements(),
           count);
}

// `count` numbers of each of N rows that have room for more, as a constant [N, count].
ConstantPtr rows_of(const Constant& c, const Shape2& s, int64_t row_bytes, int64_t count) {
  const DType dtype = s.bits == 8 ? DType::U8 : DType::U4;
  if (row_bytes * 8 == count * s.bits && s.bits != 2) return make_constant(dtype, {s.n, count}, c.bytes);
  std::vector<uint8_t> out(static_cast<size_t>(byte_size(dtype, s.n * count)));
  const auto from = c.as<uint8_t>();
  for (int64_t n = 0; n < s.n; n++)
    for (int64_t k = 0; k < count; k++) {
      const auto at = static_cast<size_t>(n * count + k);
      if (s.bits == 8) {
        out[at] = from[static_cast<size_t>(n * row_bytes + k)];
        continue;
      }
      const int64_t bit = k * s.bits;
      const int number = from[static_cast<size_t>(n * row_bytes + bit / 8)] >> (bit % 8) & ((1 << s.bits) - 1);
      out[at / 2] = static_cast<uint8_t>(out[at / 2] | number << (at % 2 * 4));
    }
  return make_constant(dtype, {s.n, count}, out);
}

// Floats of any width as f32 [N, blocks].
ConstantPtr numbers_of(const Rewriter& r, const Constant& c, const Shape2& s, const char* what) {
  if (c.elements() != s.n * s.blocks || !(c.dtype == DType::F32 || c.dtype == DType::F16 || c.dtype == DType::BF16))
    r.fail(ErrorKind::InvalidModel, "{} is {} of {} elements, expected {} floats", what, name(c.dtype), c.elements(),
           s.n * s.blocks);
  std::vector<float> out(static_cast<size_t>(c.elements()));
  for (size_t i = 0; i < out.size(); i++) {
    if (c.dtype == DType::F32)
      out[i] = c.as<float>()[i];
    else if (c.dtype == DType::F16)
      out[i] = kernel::f16_to_f32(kernel::VH(c.as<uint16_t>()[i]))[0];
    else
      out[i] = kernel::bf16_to_f32(kernel::VH(c.as<uint16_t>()[i]))[0];
  }
  return make_constant(DType::F32, {s.n, s.blocks}, out);
}

ConstantPtr zero_points(const Rewriter& r, const Shape2& s) {
  if (!r.node.has_input(3))
    return make_constant(DType::F32, {}, std::vector<float>{static_cast<float>(1 << (s.bits - 1))});
  const ConstantPtr c = r.value(r.node.inputs[3]);
  if (c->dtype != DType::U8) return numbers_of(r, *c, s, "zero_points");
  const int64_t row_bytes = (s.blocks * s.bits + 7) / 8;
  require_bytes(r, *c, s.n * row_bytes, "zero_points");
  return rows_of(*c, s, row_bytes, s.blocks);
}

void matmul_nbits(Rewriter& r) {
  const Shape2 s = read_shape(r);
  if (r.node.has_input(4)) r.fail(ErrorKind::Unsupported, "g_idx is not supported");
  for (size_t i = 1; i < 4; i++)
    if (r.node.has_input(i) && !r.value(r.node.inputs[i])) return;  // expansions/microsoft.cpp takes it
  const ConstantPtr b = r.value(r.need_input(1)), scale = r.value(r.need_input(2));
  require_bytes(r, *b, s.n * s.blocks * (s.block * s.bits / 8), "B");
  std::vector<TensorId> inputs = {
      r.need_input(0), r.constant(rows_of(*b, s, s.blocks * s.block * s.bits / 8, s.k), "weights"),
      r.constant(numbers_of(r, *scale, s, "scales"), "scale"), r.constant(zero_points(r, s), "zero")};
  const bool half = scale->dtype != DType::F32;
  auto cast = [&](TensorId t, DType to) { return r.emit("Cast", {t}, {{"to", static_cast<int64_t>(to)}}); };
  if (half) inputs[0] = cast(inputs[0], DType::F32);
  // Levels: unset, f32, f16, bf16, int8, the least that A may be rounded to.
  const int64_t a_bits = r.node.get_int("accuracy_level", 0) >= 2 ? 16 : 24;
  TensorId y = r.emit("MatMul", inputs,
                      {{"transB", int64_t{1}},
                       {"quantized", int64_t{1}},
                       {"a_bits", a_bits},
                       {"b_axis", int64_t{1}},
                       {"b_block", s.block}},
                      "ingot");
  if (r.node.has_input(5)) y = r.emit("Add", {y, half ? cast(r.input(5), DType::F32) : r.input(5)});
  r.node.op = half ? "Cast" : "Identity";
  r.node.domain.clear();
  r.node.inputs = {y};
  r.node.attrs.clear();
  if (half) r.node.attrs["to"] = static_cast<int64_t>(scale->dtype);
}

constexpr Rule kRules[] = {{"MatMulNBits", 1, kAnyVersion, matmul_nbits}};

}  // namespace

RuleTable microsoft_nbits_rules() { return {"com.microsoft", kRules}; }

}  // namespace ingot
