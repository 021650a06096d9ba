// com.microsoft: Attention, QAttention, MultiHeadAttention, DecoderMaskedMultiHeadAttention and GroupQueryAttention of
// onnxruntime, said by the standard Attention. Masks become numbers that are added to the scores, [batch, 1, queries,
// keys] with axes of 1 where they do not matter.
#include <cmath>

#include "expansions/attention_parts.h"

namespace ingot {
namespace {

constexpr const char* kDomain = "com.microsoft";

std::map<std::string, Attribute> attention_attributes(const Expander& e, int64_t heads, int64_t kv_heads) {
  std::map<std::string, Attribute> attrs = {{"q_num_heads", heads}, {"kv_num_heads", kv_heads}};
  if (const float scale = e.node.get_float("scale", 0); scale != 0) attrs["scale"] = scale;
  if (const float cap = e.node.get_float("softcap", 0); cap > 0) attrs["softcap"] = cap;
  if (e.node.get_int("unidirectional", 0)) attrs["is_causal"] = int64_t{1};
  return attrs;
}

int64_t positive(const Expander& e, const char* attr) {
  const int64_t n = e.node.need_int(attr);
  e.require(n > 0, "attribute '{}' is {}", attr, n);
  return n;
}

// mask_filter_value where `seen` is false.
TensorId filtered(Expander& e, TensorId seen, DType type) {
  const TensorId low = e.scalar(e.node.get_float("mask_filter_value", -10000), type);
  return e.emit("Where", {seen, e.scalar(0, type), low});
}

// A mask of whole numbers: [batch], how many keys there are; [2 batch], behind the last and the first; [batch, keys] or
// [batch, queries, keys], 0 for what is not to be seen.
TensorId key_mask(Expander& e, TensorId mask, const Size& batch, const Size& keys, DType type) {
  const int64_t rank = e.rank(mask);
  if (rank == 2 || rank == 3) {
    const TensorId seen = e.emit("Not", {e.emit("Equal", {mask, e.scalar(0, e.dtype(mask))})});
    return filtered(e, e.unsqueeze(seen, rank == 2 ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{1}), type);
  }
  if (rank != 1) e.fail(ErrorKind::Unsupported, "a mask of rank {} is not supported", rank);
  const Size length = e.size(mask, 0);
  const bool told = length.is_number() && batch.is_number();
  const bool both = told && length.number == 2 * batch.number;
  if (told && !both && length.number != batch.number)
    e.fail(ErrorKind::Unsupported, "a mask of {} numbers for a batch of {} is not supported", length.number,
           batch.number);
  const TensorId key = e.count_up(keys), all = e.cast(mask, DType::I64);
  auto per_batch = [&](const Size& from, const Size& to) { return e.unsqueeze(e.slice(all, 0, from, to), {1, 2, 3}); };
  TensorId seen = e.emit("Less", {key, both ? per_batch(0, batch) : e.unsqueeze(all, {1, 2, 3})});
  if (both) seen = e.emit("And", {seen, e.emit("GreaterOrEqual", {key, per_batch(batch, kToTheEnd)})});
  return filtered(e, seen, type);
}

// One of the tensors stacked along an axis: [batch, seq, heads, n, dim] -> [batch, heads, seq, dim]
TensorId unstacked(Expander& e, TensorId stacked, int64_t i) {
  return e.transpose(e.squeeze(e.slice(stacked, 3, i, i + 1), {3}), {0, 2, 1, 3});
}

struct Operands {
  TensorId q, k, v, mask = kNoTensor, past_key = kNoTensor, past_value = kNoTensor;
};

// How many keys there are, those of the cache included.
Size key_count(Expander& e, const Operands& o, int64_t heads) {
  if (o.past_key == kNoTensor) return e.size(o.k, e.rank(o.k) == 3 ? 1 : 2);
  return e.size(e.concat({o.past_key, e.rank(o.k) == 3 ? split_heads(e, o.k, heads) : o.k}, 2), 2);
}

// The mask of whole numbers and the numbers to be added, as one.
void add_masks(Expander& e, Operands& o, TensorId mask, TensorId added, int64_t heads) {
  if (mask != kNoTensor) o.mask = key_mask(e, mask, e.size(o.q, 0), key_count(e, o, heads), e.dtype(o.q));
  if (added != kNoTensor) o.mask = o.mask == kNoTensor ? added : e.emit("Add", {o.mask, added});
}

// Attention of operands of rank 3 or 4; the result is [batch, seq, heads dim]. Gives {result, keys, values, scores}.
std::vector<TensorId> attend(Expander& e, const Operands& o, const std::map<std::string, Attribute>& attrs) {
  auto out = e.emit_many("Attention", {o.q, o.k, o.v, o.mask, o.past_key, o.past_value}, 4, attrs);
  if (e.rank(o.q) == 4) out[0] = merge_heads(e, out[0]);
  return out;
}

void refuse(const Expander& e, std::initializer_list<const char*> attrs) {
  for (const char* a : attrs)
    if (e.node.get_int(a, 0)) e.fail(ErrorKind::Unsupported, "attribute '{}' is not supported", a);
}

void expand_multi_head_attention(Expander& e) {
  enum : size_t { kQuery, kKey, kValue, kBias, kMask, kAdded, kPastKey, kPastValue, kPastLength };
  const int64_t heads = positive(e, "num_heads");
  if (e.has(kPastLength)) e.fail(ErrorKind::Unsupported, "a cache that is longer than its content is not supported");
  Operands o{e.in(kQuery), e.in_or_none(kKey), e.in_or_none(kValue), kNoTensor};
  const bool stacked = e.rank(o.q) == 5;
  if (stacked) {
    const TensorId all = o.q;
    o.q = unstacked(e, all, 0), o.k = unstacked(e, all, 1), o.v = unstacked(e, all, 2);
  } else if (e.rank(e.in(kKey)) == 5) {
    const TensorId both = o.k;
    o.k = unstacked(e, both, 0), o.v = unstacked(e, both, 1);
  }
  if (e.has(kBias)) {
    if (stacked || e.rank(o.k) != 3)
      e.fail(ErrorKind::Unsupported, "a bias is supported only with Q, K and V of rank 3");
    const Size width = e.size(o.q, 2);
    o.q = e.emit("Add", {o.q, e.slice(e.in(kBias), 0, 0, width)});
    o.k = e.emit("Add", {o.k, e.slice(e.in(kBias), 0, width, width * 2)});
    o.v = e.emit("Add", {o.v, e.slice(e.in(kBias), 0, width * 2)});
  }
  e.require(o.k != kNoTensor && o.v != kNoTensor, "key and value are missing");
  // Keys by head stand beside queries by head.
  if (e.rank(o.k) == 4 && e.rank(o.q) == 3) o.q = split_heads(e, o.q, heads);
  if (e.rank(o.q) == 4 && e.rank(o.v) == 3) o.v = split_heads(e, o.v, heads);
  o.past_key = e.in_or_none(kPastKey), o.past_value = e.in_or_none(kPastValue);
  add_masks(e, o, e.in_or_none(kMask), e.in_or_none(kAdded), heads);
  const auto out = attend(e, o, attention_attributes(e, heads, heads));
  for (size_t i = 0; i < 3; i++) e.result(i, out[i]);
}

// Attention of queries, keys and values that lie behind each other in `all`; past is [2, batch, heads, past, dim].
void attend_to_itself(Expander& e, TensorId all, TensorId mask, TensorId both_past, TensorId added) {
  const int64_t heads = positive(e, "num_heads");
  refuse(e, {"do_rotary", "past_present_share_buffer"});
  const auto widths = e.node.get_ints("qkv_hidden_sizes");
  std::map<std::string, Attribute> split = {{"axis", int64_t{2}}};
  if (widths.empty()) split["num_outputs"] = int64_t{3};
  const auto qkv = e.emit_many("Split", {all, widths.empty() ? kNoTensor : e.ints(widths)}, 3, std::move(split));
  Operands o{qkv[0], qkv[1], qkv[2], kNoTensor};
  if (both_past != kNoTensor) {
    auto past = [&](int64_t i) { return e.squeeze(e.slice(both_past, 0, i, i + 1), {0}); };
    o.past_key = past(0), o.past_value = past(1);
  }
  add_masks(e, o, mask, added, heads);
  const auto out = attend(e, o, attention_attributes(e, heads, heads));
  e.result(0, out[0]);
  if (e.node.has_output(1)) e.result(1, e.concat({e.unsqueeze(out[1], {0}), e.unsqueeze(out[2], {0})}, 0));
}

void expand_attention(Expander& e) {
  enum : size_t { kInput, kWeights, kBias, kMask, kPast, kAdded };
  TensorId all = e.emit("MatMul", {e.in(kInput), e.in(kWeights)});
  if (e.has(kBias)) all = e.emit("Add", {all, e.in(kBias)});
  attend_to_itself(e, all, e.in_or_none(kMask), e.in_or_none(kPast), e.in_or_none(kAdded));
}

void expand_qattention(Expander& e) {
  enum : size_t { kInput, kWeights, kBias, kScale, kWeightScale, kMask, kZero, kWeightZero, kPast };
  const TensorId sum =
      e.emit("MatMulInteger", {e.in(kInput), e.in(kWeights), e.in_or_none(kZero), e.in_or_none(kWeightZero)});
  const DType type = e.dtype(e.in(kScale));
  const TensorId scale = e.emit("Mul", {e.in(kScale), e.in(kWeightScale)});
  const TensorId all = e.emit("Add", {e.emit("Mul", {e.cast(sum, type), scale}), e.in(kBias)});
  attend_to_itself(e, all, e.in_or_none(kMask), e.in_or_none(kPast), kNoTensor);
}

// ---- DecoderMaskedMultiHeadAttention: one token a time, with caches that have room for what is to come ----

// past [batch, heads, room, dim] with each token of the first `length` taken from the beam that cache_indirection
// [batch / beams, beams, room] names for it.
TensorId along_beams(Expander& e, TensorId past, TensorId beams_of, TensorId length) {
  const Size batch = e.size(past, 0), room = e.size(past, 2);
  const TensorId beams = e.scalar_size(e.size(beams_of, 1)), place = e.count_up(room);
  const TensorId row = e.unsqueeze(e.count_up(batch), {1});
  const TensorId first = e.emit("Mul", {e.emit("Div", {row, beams}), beams});  // of the beams of this batch
  const TensorId chosen = e.emit("Add", {first, e.reshape(e.cast(beams_of, DType::I64), {batch, room})});
  const TensorId from = e.emit("Where", {e.emit("Less", {place, length}), chosen, row});
  const TensorId index = e.emit("Add", {e.emit("Mul", {from, e.scalar_size(room)}), place});
  const TensorId tokens = e.reshape(e.transpose(past, {0, 2, 1, 3}), {batch * room, e.size(past, 1), e.size(past, 3)});
  return e.transpose(e.emit("Gather", {tokens, index}), {0, 2, 1, 3});
}

namespace decoder {
enum : size_t { kQuery, kKey, kValue, kMask, kAdded, kPastKey, kPastValue, kPastLength, kBeams, kIndirection, kBias };
}

// Queries, keys and values by head, biased. Keys and values that came by head are those of an encoder.
Operands decoder_operands(Expander& e, int64_t heads) {
  using namespace decoder;
  Operands o{e.in(kQuery), e.in_or_none(kKey), e.in_or_none(kValue)};
  if (o.k == kNoTensor) {
    const auto all = e.emit_many("Split", {o.q}, 3, {{"axis", int64_t{2}}, {"num_outputs", int64_t{3}}});
    o.q = all[0], o.k = all[1], o.v = all[2];
  }
  const bool encoded = e.rank(o.k) == 4;
  const Size width = e.size(o.q, 2);
  auto by_head = [&](TensorId t, const Size& from, const Size& to) {
    return split_heads(e, e.has(kBias) ? e.emit("Add", {t, e.slice(e.in(kBias), 0, from, to)}) : t, heads);
  };
  o.q = by_head(o.q, 0, width);
  if (!encoded) o.k = by_head(o.k, width, width * 2), o.v = by_head(o.v, width * 2, kToTheEnd);
  add_masks(e, o, e.in_or_none(kMask), e.in_or_none(kAdded), heads);
  return o;
}

void expand_decoder_attention(Expander& e) {
  using namespace decoder;
  const int64_t heads = positive(e, "num_heads");
  Operands o = decoder_operands(e, heads);
  auto attrs = attention_attributes(e, heads, heads);
  attrs["qk_matmul_output_mode"] = int64_t{2};  // scaled, with masks
  if (!e.has(kPastKey)) {
    const auto out = attend(e, o, attrs);
    for (size_t i = 0; i < 4; i++) e.result(i, out[i]);
    return;
  }
  if (!e.node.get_int("past_present_share_buffer", 0))
    e.fail(ErrorKind::Unsupported, "past_present_share_buffer 0 is not supported");
  const TensorId length = e.reshape(e.cast(e.in(kPastLength), DType::I64), {1});
  const TensorId at = e.emit("Expand", {length, e.sizes({e.size(o.q, 0)})});
  auto appended = [&](TensorId past, TensorId fresh) {
    return e.emit("TensorScatter", {past, fresh, at}, {{"axis", int64_t{2}}});
  };
  auto seen = [&](size_t past, TensorId fresh, TensorId present) {
    return e.has(kIndirection) ? appended(along_beams(e, e.in(past), e.in(kIndirection), length), fresh) : present;
  };
  const TensorId keys = appended(e.in(kPastKey), o.k), values = appended(e.in(kPastValue), o.v);
  const TensorId total = e.emit("Add", {length, e.ints({1})});
  // A mask has a column for each token there is; Attention hides what is behind them.
  if (o.mask == kNoTensor) o.mask = e.unsqueeze(e.emit("Less", {e.count_up(e.size(keys, 2)), total}), {0});
  o.k = seen(kPastKey, o.k, keys), o.v = seen(kPastValue, o.v, values);
  const auto out = attend(e, o, attrs);
  e.result(0, out[0]);
  e.result(1, keys);
  e.result(2, values);
  if (e.node.has_output(3)) e.result(3, e.emit("Slice", {out[3], e.ints({0}), total, e.ints({3})}));
}

// ---- GroupQueryAttention: the caches have room for what is to come, and each batch its own length ----

struct Cache {
  TensorId before;  // [batch]: tokens that were there
  TensorId total;   // a scalar: the tokens of the longest batch
};

// The cache, made long enough, with the new tokens behind those that were there.
TensorId append(Expander& e, const Cache& c, TensorId past, TensorId fresh) {
  if (past == kNoTensor) return fresh;
  const TensorId lack = e.emit("Sub", {e.unsqueeze(c.total, {0}), e.sizes({e.size(past, 2)})});
  const TensorId more = e.emit("Max", {lack, e.ints({0})});
  const TensorId room = e.emit("Pad", {past, e.concat({e.ints({0}), more}, 0), kNoTensor, e.ints({2})});
  return e.emit("TensorScatter", {room, fresh, c.before}, {{"axis", int64_t{2}}});
}

// One more key with the score `sink` for each head, or 0, and a value of 0: it only takes a share of the softmax.
void add_sink(Expander& e, Operands& o, TensorId sink, int64_t heads) {
  const DType type = e.dtype(o.q);
  const TensorId keys = e.scalar_size(e.size(o.k, 2));
  auto longer = [&](TensorId t, int64_t axis) { return e.emit("Pad", {t, e.ints({0, 1}), kNoTensor, e.ints({axis})}); };
  o.k = longer(o.k, 2), o.v = longer(o.v, 2);
  if (e.dtype(o.mask) == DType::Bool) o.mask = e.emit("Where", {o.mask, e.scalar(0, type), e.scalar(-INFINITY, type)});
  o.mask = longer(o.mask, 3);
  if (sink == kNoTensor) return;
  const TensorId is_key = e.emit("Less", {e.count_up(e.size(o.k, 2)), keys});
  o.mask = e.emit("Where", {is_key, o.mask, e.reshape(e.cast(sink, type), {1, heads, 1, 1})});
}

// [batch, 1, queries, keys]: keys up to the query's own, and as many before it as the window holds.
TensorId visible(Expander& e, TensorId positions, TensorId keys) {
  const TensorId key = e.count_up(e.size(keys, 2)), at = e.unsqueeze(positions, {1, 3});
  const TensorId causal = e.emit("LessOrEqual", {key, at});
  const int64_t window = e.node.get_int("local_window_size", -1);
  if (window < 0) return causal;
  const TensorId first = e.emit("Sub", {at, e.scalar(static_cast<double>(window), DType::I64)});
  return e.emit("And", {causal, e.emit("Greater", {key, first})});
}

void expand_group_query_attention(Expander& e) {
  enum : size_t { kQuery, kKey, kValue, kPastKey, kPastValue, kLengths, kTotal, kCos, kSin, kPositions, kAdded, kSink };
  const int64_t heads = positive(e, "num_heads"), kv_heads = positive(e, "kv_num_heads");
  refuse(e, {"qk_output"});
  for (const char* a : {"k_quant_type", "v_quant_type"})
    if (e.node.get_string(a, "NONE") != "NONE") e.fail(ErrorKind::Unsupported, "quantized caches are not supported");
  TensorId q, k, v;
  if (e.has(kKey)) {
    q = split_heads(e, e.in(kQuery), heads);
    k = split_heads(e, e.in(kKey), kv_heads), v = split_heads(e, e.in(kValue), kv_heads);
  } else {
    const TensorId all = split_heads(e, e.in(kQuery), heads + 2 * kv_heads);
    q = e.slice(all, 1, 0, heads), k = e.slice(all, 1, heads, heads + kv_heads), v = e.slice(all, 1, heads + kv_heads);
  }

  const TensorId tokens = e.scalar_size(e.size(q, 2)), total = e.reshape(e.cast(e.in(kTotal), DType::I64), {});
  const TensorId lengths = e.reshape(e.cast(e.in(kLengths), DType::I64), {-1});  // less one
  const TensorId carried = e.emit("Sub", {e.emit("Add", {lengths, e.scalar(1, DType::I64)}), tokens});
  const TensorId before = e.emit("Where", {e.emit("Equal", {total, tokens}), e.scalar(0, DType::I64), carried});
  const TensorId positions = e.emit("Add", {e.unsqueeze(before, {1}), e.count_up(e.size(q, 2))});
  if (e.node.get_int("do_rotary", 0)) {
    std::map<std::string, Attribute> attrs = {{"interleaved", e.node.get_int("rotary_interleaved", 0)}};
    if (const Size half = e.size(e.in(kCos), 1); half.is_number()) attrs["rotary_embedding_dim"] = 2 * half.number;
    const TensorId at = e.has(kPositions) ? e.in(kPositions) : positions;
    for (TensorId* t : {&q, &k}) *t = e.emit("RotaryEmbedding", {*t, e.in(kCos), e.in(kSin), at}, attrs);
  }
  const Cache cache{before, total};
  const TensorId keys = append(e, cache, e.in_or_none(kPastKey), k);
  const TensorId values = append(e, cache, e.in_or_none(kPastValue), v);
  TensorId mask = visible(e, positions, keys);
  if (e.has(kAdded)) mask = e.emit("Where", {mask, e.in(kAdded), e.scalar(-INFINITY, e.dtype(q))});
  Operands o{q, keys, values, mask};
  if (e.node.get_int("smooth_softmax", 0) || e.has(kSink)) add_sink(e, o, e.in_or_none(kSink), heads);
  e.result(0, attend(e, o, attention_attributes(e, heads, kv_heads))[0]);
  e.result(1, keys);
  e.result(2, values);
}

}  // namespace

void register_microsoft_attention(ExpansionRegistry& r) {
  r.add("Attention", expand_attention, kDomain);
  r.add("QAttention", expand_qattention, kDomain);
  r.add("DecoderMaskedMultiHeadAttention", expand_decoder_attention, kDomain);
  r.add("MultiHeadAttention", expand_multi_head_attention, kDomain);
  r.add("GroupQueryAttention", expand_group_query_attention, kDomain);
}

}  // namespace ingot
