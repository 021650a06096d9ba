// ingot.MurmurHash3, which onnxruntime has as com.microsoft.MurmurHash3: Austin Appleby's 32-bit hash of the bytes of
// each element. Attributes: "seed"; "positive", whether the results are u32 or i32.
#include <bit>
#include <cstring>

#include "ops/host.h"

namespace ingot {
namespace {

// Spreads the bits of four bytes.
uint32_t scrambled(uint32_t k) { return std::rotl(k * 0xcc9e2d51u, 15) * 0x1b873593u; }

uint32_t murmur_hash3(std::span<const std::byte> bytes, uint32_t seed) {
  uint32_t hash = seed;
  const size_t whole = bytes.size() / 4 * 4;
  for (size_t i = 0; i < whole; i += 4) {
    uint32_t k = 0;
    std::memcpy(&k, bytes.data() + i, 4);
    hash = std::rotl(hash ^ scrambled(k), 13) * 5 + 0xe6546b64u;
  }
  uint32_t rest = 0;
  for (size_t i = bytes.size(); i-- > whole;) rest = rest << 8 | std::to_integer<uint32_t>(bytes[i]);
  if (bytes.size() > whole) hash ^= scrambled(rest);
  hash ^= static_cast<uint32_t>(bytes.size());
  hash = (hash ^ hash >> 16) * 0x85ebca6bu;
  hash = (hash ^ hash >> 13) * 0xc2b2ae35u;
  return hash ^ hash >> 16;
}

void infer(InferContext& ctx) {
  ctx.set_dtype(0, ctx.node.get_int("positive", 1) ? DType::U32 : DType::I32);
  const DType t = ctx.dtype(0);
  ctx.require(t == DType::String || ((is_integer(t) || is_float(t)) && bits(t) >= 32),
              "the operand is {}, expected strings or numbers of 32 or 64 bits", name(t));
  ctx.set_shape(0, ctx.shape(0));
}

void run(HostContext& ctx) {
  const Constant& x = *ctx.tensor(0);
  const auto seed = static_cast<uint32_t>(ctx.node.get_int("seed", 0));
  std::vector<uint32_t> out;
  if (x.dtype == DType::String) {
    for (const std::string& s : ctx.strings(0)) out.push_back(murmur_hash3(std::as_bytes(std::span(s)), seed));
  } else {
    const auto width = static_cast<size_t>(element_bytes(x));
    for (size_t i = 0; i < static_cast<size_t>(x.elements()); i++)
      out.push_back(murmur_hash3(std::span(x.bytes).subspan(i * width, width), seed));
  }
  ctx.set(0, ctx.node.get_int("positive", 1) ? DType::U32 : DType::I32, x.dims, out);
}

}  // namespace

void register_murmur_hash(OpRegistry& r) {
  OpDef def = host_op("MurmurHash3", 1, 1, 1, infer, run);
  def.domain = "ingot";
  r.add(std::move(def));
}

}  // namespace ingot
