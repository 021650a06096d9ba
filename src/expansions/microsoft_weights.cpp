// com.microsoft: operators of onnxruntime with weights of 2, 4 or 8 bits that are stored in bytes.
#include "base/checked.h"
#include "expansions/expander.h"

namespace ingot {
namespace {

constexpr const char* kDomain = "com.microsoft";

TensorId right_shift(Expander& e, TensorId bytes, int64_t by) {
  return e.emit("BitShift", {bytes, e.scalar(static_cast<double>(by), DType::U8)},
                {{"direction", std::string("RIGHT")}});
}

// The numbers in each byte, the lowest bits first: [..., n] -> [..., n 8 / bits] of u8
TensorId as_bytes(Expander& e, TensorId bytes, int64_t bits) {
  if (bits == 8) return bytes;
  const int64_t rank = e.rank(bytes), each = 8 / bits;
  std::vector<TensorId> parts;
  for (int64_t i = 0; i < each; i++) {
    TensorId part = i == 0 ? bytes : right_shift(e, bytes, i * bits);
    if (i + 1 < each) part = e.emit("BitwiseAnd", {part, e.scalar((1 << bits) - 1, DType::U8)});
    parts.push_back(e.unsqueeze(part, {rank}));
  }
  std::vector<Size> sizes;
  for (int64_t d = 0; d < rank; d++) sizes.push_back(e.size(bytes, d));
  sizes.back() = sizes.back() * each;
  return e.reshape(e.concat(parts, rank), sizes);
}

int64_t bits_of(const Expander& e) {
  const int64_t bits = e.node.get_int("bits", 4);
  if (bits != 2 && bits != 4 && bits != 8)
    e.fail(ErrorKind::Unsupported, "weights of {} bits are not supported, 2, 4 and 8 are", bits);
  return bits;
}

// The zero point of bytes for which none is given: the middle.
int64_t middle(int64_t bits) { return int64_t{1} << (bits - 1); }

TensorId plus_bias(Expander& e, TensorId y, size_t bias) { return e.has(bias) ? e.emit("Add", {y, e.in(bias)}) : y; }

// A B^T + bias with B [N, K] of bytes: each block of a row has its scale and its zero point.
void matmul_nbits(Expander& e) {
  enum Operand : size_t { kA, kB, kScales, kZeros, kOrder, kBias };
  const int64_t k = e.node.need_int("K"), n = e.node.need_int("N"), block = e.node.need_int("block_size");
  const int64_t bits = bits_of(e);
  e.require(k > 0 && n > 0 && block > 0, "K, N and block_size are {}, {} and {}", k, n, block);
  if (e.has(kOrder)) e.fail(ErrorKind::Unsupported, "g_idx is not supported");
  const int64_t blocks = k / block + (k % block != 0);
  const DType type = e.dtype(e.in(kA));
  TensorId zeros = e.scalar(static_cast<double>(middle(bits)), type);
  if (e.has(kZeros)) {
    zeros = e.in(kZeros);
    const bool like_b = e.dtype(zeros) == DType::U8;  // otherwise numbers of the type of A
    if (like_b) zeros = as_bytes(e, e.reshape(zeros, {n, -1}), bits);
    zeros = e.unsqueeze(e.slice(e.cast(e.reshape(zeros, {n, -1}), type), 1, 0, blocks), {2});
  }
  const TensorId b = e.reshape(e.cast(as_bytes(e, e.in(kB), bits), type), {n, blocks, block});
  const TensorId scales = e.reshape(e.in(kScales), {n, blocks, 1});
  const TensorId rows = e.reshape(e.emit("Mul", {e.emit("Sub", {b, zeros}), scales}), {n, checked_mul(blocks, block)});
  const TensorId weights = e.transpose(blocks * block == k ? rows : e.slice(rows, 1, 0, k), {1, 0});
  e.result(0, plus_bias(e, e.emit("MatMul", {e.in(kA), weights}), kBias));
}

// The 16 numbers that 4 bits stand for: floats of bitsandbytes, and quantiles of the normal distribution (NF4).
std::vector<float> bnb4_table(const Expander& e) {
  switch (e.node.need_int("quant_type")) {
    case 0: {
      std::vector<float> table = {0, 0.0052083333f, 0.66666667f, 1, 0.33333333f, 0.5f, 0.16666667f, 0.25f};
      for (size_t i = 0; i < 8; i++) table.push_back(-table[i]);
      return table;
    }
    case 1:
      return {-1,         -0.6961928f, -0.52507305f, -0.3949175f, -0.28444138f, -0.18477343f, -0.09105004f, 0,
              0.0795803f, 0.1609302f,  0.2461123f,   0.33791524f, 0.44070983f,  0.562617f,    0.72295684f,  1};
    default:
      e.fail(ErrorKind::InvalidModel, "quant_type is {}, expected 0 or 1", e.node.need_int("quant_type"));
  }
}

// A B^T with B [N, K], written as one list of 4-bit numbers, the high half of a byte first. Each block of the list has
// its factor.
void matmul_bnb4(Expander& e) {
  enum Operand : size_t { kA, kB, kLargest };
  const int64_t k = e.node.need_int("K"), n = e.node.need_int("N"), block = e.node.need_int("block_size");
  e.require(k > 0 && n > 0 && block > 0, "K, N and block_size are {}, {} and {}", k, n, block);
  if (!e.node.get_int("transB", 1)) e.fail(ErrorKind::Unsupported, "transB 0 is not supported");
  const DType type = e.dtype(e.in(kA));
  const int64_t count = checked_mul(n, k), blocks = count / block + (count % block != 0);
  const TensorId bytes = e.reshape(e.in(kB), {-1, 1});
  const TensorId high = right_shift(e, bytes, 4), low = e.emit("BitwiseAnd", {bytes, e.scalar(15, DType::U8)});
  const TensorId codes = e.reshape(e.cast(e.concat({high, low}, 1), DType::I32), {-1});
  const TensorId table = e.constant(make_constant(DType::F32, {16}, bnb4_table(e)), "table");
  TensorId numbers = e.cast(e.emit("Gather", {table, e.slice(codes, 0, 0, count)}), type);
  const TensorId lack = e.ints({0, checked_mul(blocks, block) - count});
  if (count % block != 0) numbers = e.emit("Pad", {numbers, lack});
  const TensorId factors = e.reshape(e.in(kLargest), {blocks, 1});
  TensorId b = e.reshape(e.emit("Mul", {e.reshape(numbers, {blocks, block}), factors}), {-1});
  if (count % block != 0) b = e.slice(b, 0, 0, count);
  e.result(0, e.emit("MatMul", {e.in(kA), e.transpose(e.reshape(b, {n, k}), {1, 0})}));
}

// Gather of weights with a scale (and zero point) for each block along quantize_axis, as floats. 4-bit elements are
// made bytes first: a Gather moves whole bytes.
void gather_block_quantized(Expander& e) {
  enum Operand : size_t { kData, kIndices, kScales, kZeros };
  const int64_t rank = e.rank(e.in(kData)), block = e.node.get_int("block_size", 128);
  e.require(block > 0, "block_size is {}", block);
  const int64_t from = e.axis(e.node.get_int("gather_axis", 0), rank);
  const int64_t along = e.axis(e.node.get_int("quantize_axis", 1), rank);
  const DType stored = e.dtype(e.in(kData));
  const bool packed = stored == DType::U8;
  e.require(packed || stored == DType::U4 || stored == DType::I4, "the data are {}, expected u8, u4 or i4",
            name(stored));
  e.require(!packed || (from != along && along == rank - 1),
            "data of u8 need a quantize_axis that is the last and not gather_axis, they are {} and {} of rank {}",
            along, from, rank);
  const int64_t bits = packed ? bits_of(e) : 8;
  const DType type = stored == DType::I4 ? DType::I8 : DType::U8;

  TensorId where = e.in(kIndices);
  if (from == along) {  // the blocks of the elements that are gathered
    const DType index = e.dtype(where);
    const TensorId size = e.cast(e.scalar_size(e.size(e.in(kData), from)), index);
    const TensorId negative = e.emit("Less", {where, e.scalar(0, index)});
    const TensorId counted = e.emit("Where", {negative, e.emit("Add", {where, size}), where});
    where = e.emit("Div", {counted, e.scalar(static_cast<double>(block), index)});
  }
  auto gathered = [&](TensorId t, TensorId indices) { return e.emit("Gather", {t, indices}, {{"axis", from}}); };
  const TensorId data = as_bytes(e, gathered(e.cast(e.in(kData), type), e.in(kIndices)), bits);
  const TensorId scale = gathered(e.in(kScales), where);
  TensorId zero = kNoTensor;
  if (e.has(kZeros)) {
    zero = as_bytes(e, gathered(e.cast(e.in(kZeros), type), where), bits);
    if (bits < 8) zero = e.slice(zero, -1, 0, e.size(e.in(kScales), along));
  } else if (packed) {
    const TensorId one = e.scalar(static_cast<double>(middle(bits)), type);
    zero = e.emit("Expand", {one, e.emit("Shape", {scale})});
  }
  if (from == along) {
    TensorId y = e.cast(data, DType::F32);
    if (zero != kNoTensor) y = e.emit("Sub", {y, e.cast(zero, DType::F32)});
    return e.result(0, e.cast(e.emit("Mul", {y, e.cast(scale, DType::F32)}), e.dtype(scale)));
  }
  const int64_t axis = along < from ? along : along + e.rank(e.in(kIndices)) - 1;
  e.result(0, e.emit("DequantizeLinear", {data, scale, zero}, {{"axis", axis}, {"block_size", block}}));
}

}  // namespace

void register_microsoft_weights(ExpansionRegistry& r) {
  r.add("MatMulNBits", matmul_nbits, kDomain);
  r.add("MatMulBnb4", matmul_bnb4, kDomain);
  r.add("GatherBlockQuantized", gather_block_quantized, kDomain);
}

}  // namespace ingot
