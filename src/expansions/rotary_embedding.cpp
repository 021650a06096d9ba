// RotaryEmbedding: pairs (a, b) of each head's first values are turned by the angle of the token's position,
//   (a cos - b sin, a sin + b cos);
// a pair is (x[i], x[i + n]) of 2n values, or with `interleaved` (x[2i], x[2i + 1]). The caches hold the angles'
// cosines and sines by position, or, without position_ids, by token.
#include "expansions/expander.h"

namespace ingot {
namespace {

// [batch, seq, heads dim] -> [batch, seq, heads, dim]
TensorId split_heads(Expander& e, TensorId x) {
  const int64_t heads = e.node.need_int("num_heads");
  const Size width = e.size(x, 2);
  e.require(heads > 0 && (!width.is_number() || width.number % heads == 0), "{} heads do not divide {}", heads,
            e.shape(x)[2].str());
  return e.reshape(x, {e.size(x, 0), e.size(x, 1), heads, width.is_number() ? width.number / heads : -1});
}

std::pair<TensorId, TensorId> pairs(Expander& e, TensorId x, bool interleaved) {
  if (interleaved) return {e.slice(x, 3, 0, kToTheEnd, 2), e.slice(x, 3, 1, kToTheEnd, 2)};
  const auto halves = e.emit_many("Split", {x}, 2, {{"axis", int64_t{3}}, {"num_outputs", int64_t{2}}});
  return {halves[0], halves[1]};
}

void expand_rotary_embedding(Expander& e) {
  const TensorId input = e.in(0);
  const int64_t rank = e.rank(input);
  e.require(rank == 3 || rank == 4, "X is of rank {}, expected 3 or 4", rank);
  const bool merged = rank == 3;  // [batch, seq, heads dim], otherwise [batch, heads, seq, dim]
  const TensorId x = merged ? split_heads(e, input) : input;
  const Size dim = e.size(x, 3);
  const int64_t given = e.node.get_int("rotary_embedding_dim", 0);
  const Size turned = given == 0 ? dim : Size(given);
  const bool fits = !dim.is_number() || turned.number <= dim.number;
  e.require(!turned.is_number() || (turned.number > 0 && turned.number % 2 == 0 && fits),
            "{} values of each head of {} cannot be turned in pairs", turned.number, str(e.shape(x)));
  const bool all = given == 0 || e.shape(x)[3].is(given);

  auto cache = [&](size_t i) {
    TensorId t = e.has(3) ? e.emit("Gather", {e.in(i), e.in(3)}) : e.in(i);
    e.require(e.rank(t) == 3, "the cache of operand {} does not give one row per batch and token", i);
    return e.unsqueeze(t, {merged ? 2 : 1});
  };
  const TensorId cos = cache(1), sin = cache(2);
  const bool interleaved = e.node.get_int("interleaved", 0) != 0;
  const auto [a, b] = pairs(e, all ? x : e.slice(x, 3, 0, turned), interleaved);
  const TensorId real = e.emit("Sub", {e.emit("Mul", {a, cos}), e.emit("Mul", {b, sin})});
  const TensorId imaginary = e.emit("Add", {e.emit("Mul", {a, sin}), e.emit("Mul", {b, cos})});
  std::vector<TensorId> parts = {real, imaginary};
  if (interleaved)
    parts = {e.reshape(e.concat({e.unsqueeze(real, {4}), e.unsqueeze(imaginary, {4})}, 4),
                       {e.size(x, 0), e.size(x, 1), e.size(x, 2), turned})};
  if (!all) parts.push_back(e.slice(x, 3, turned));
  const TensorId y = e.concat(parts, 3);
  e.result(0, merged ? e.reshape(y, {e.size(input, 0), e.size(input, 1), e.size(input, 2)}) : y);
}

}  // namespace

void register_rotary_embedding(ExpansionRegistry& r) { r.add("RotaryEmbedding", expand_rotary_embedding); }

}  // namespace ingot
