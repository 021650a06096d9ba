// Attention:  Y = softmax(softcap(scale Q K^T) + bias) V,  softcap(s) = c tanh(s / c).
//
// The keys are those of the cache followed by the new ones. The bias is minus infinity where a key is not to be seen:
// by the boolean mask, behind the diagonal (is_causal), outside the window, past the end of a padded cache; or else the
// mask of numbers. A query that sees nothing gives zeros. What the fusion `attention` recognises is emitted in a form
// it knows: Where for the boolean part, Add for the numbers.
#include <cmath>

#include "expansions/attention_parts.h"

namespace ingot {
namespace {

enum Operand : size_t { kQ, kK, kV, kMask, kPastKey, kPastValue, kValidKeys };

TensorId by_heads(Expander& e, TensorId x, const char* attr) {
  return e.rank(x) == 4 ? x : split_heads(e, x, e.node.need_int(attr));
}

TensorId with_past(Expander& e, TensorId x, size_t past) { return e.has(past) ? e.concat({e.in(past), x}, 2) : x; }

// The mask with as many columns as there are keys; what it does not tell of is not seen.
TensorId full_mask(Expander& e, TensorId mask, TensorId k) {
  e.require(e.rank(mask) >= 1 && e.rank(mask) <= 4, "the mask is of rank {}", e.rank(mask));
  const auto rank = static_cast<size_t>(e.rank(mask));
  if (e.shape(mask).back() == e.shape(k)[2]) return mask;
  const TensorId missing = e.emit("Sub", {e.sizes({e.size(k, 2)}), e.sizes({e.size(mask, -1)})});
  const TensorId pads = e.concat({e.ints(std::vector<int64_t>(2 * rank - 1)), missing}, 0);
  const DType dtype = e.dtype(mask);
  return e.emit("Pad", {mask, pads, e.scalar(dtype == DType::Bool ? 0 : -INFINITY, dtype)});
}

struct Bias {
  TensorId allowed = kNoTensor;  // boolean
  TensorId added = kNoTensor;    // numbers
  bool may_hide_all = false;     // of a query's keys

  void allow(Expander& e, TensorId where) { allowed = allowed == kNoTensor ? where : e.emit("And", {allowed, where}); }
};

// Positions of the queries among the keys, as a column; with a padded cache one per batch.
TensorId query_positions(Expander& e, TensorId q) {
  const TensorId i = e.unsqueeze(e.count_up(e.size(q, 2)), {1});
  if (e.has(kPastKey)) return e.emit("Add", {i, e.scalar_size(e.size(e.in(kPastKey), 2))});
  if (!e.has(kValidKeys)) return i;
  const TensorId before = e.emit("Sub", {e.in(kValidKeys), e.scalar_size(e.size(q, 2))});
  return e.emit("Add", {i, e.unsqueeze(before, {1, 2, 3})});
}

// position - left <= key <= position + right; a side of -1 is open.
void add_window(Expander& e, Bias& bias, TensorId q, TensorId keys) {
  const int64_t left = e.node.get_int("left_window_size", -1), given = e.node.get_int("right_window_size", -1);
  e.require(left >= -1 && given >= -1, "the window sizes {} and {} must be -1 or more", left, given);
  const int64_t right = e.node.get_int("is_causal", 0) ? 0 : given;
  if (left < 0 && right < 0) return;
  const TensorId at = query_positions(e, q);
  auto shifted = [&](int64_t by) { return by == 0 ? at : e.emit("Add", {at, e.scalar(double(by), DType::I64)}); };
  if (right >= 0) bias.allow(e, e.emit("LessOrEqual", {keys, shifted(right)}));
  if (left >= 0) bias.allow(e, e.emit("GreaterOrEqual", {keys, shifted(-left)}));
  bias.may_hide_all |= left >= 0;
}

Bias make_bias(Expander& e, TensorId q, TensorId k) {
  Bias bias;
  if (e.has(kMask)) {
    const TensorId mask = full_mask(e, e.in(kMask), k);
    bias.may_hide_all = true;
    if (e.dtype(mask) == DType::Bool)
      bias.allowed = mask;
    else
      bias.added = e.cast(mask, e.dtype(q));
  }
  const TensorId keys = e.count_up(e.size(k, 2));
  add_window(e, bias, q, keys);
  if (e.has(kValidKeys)) {
    bias.may_hide_all = true;
    bias.allow(e, e.emit("Less", {keys, e.unsqueeze(e.in(kValidKeys), {1, 2, 3})}));
  }
  return bias;
}

TensorId softcap(Expander& e, TensorId scores) {
  const float cap = e.node.get_float("softcap", 0);
  if (cap <= 0) return scores;
  const TensorId c = e.scalar(cap, e.dtype(scores));
  return e.emit("Mul", {e.emit("Tanh", {e.emit("Div", {scores, c})}), c});
}

TensorId add_bias(Expander& e, TensorId scores, const Bias& bias) {
  if (bias.added != kNoTensor) scores = e.emit("Add", {scores, bias.added});
  if (bias.allowed == kNoTensor) return scores;
  return e.emit("Where", {bias.allowed, scores, e.scalar(-INFINITY, e.dtype(scores))});
}

TensorId probabilities(Expander& e, TensorId scores, bool may_hide_all) {
  const DType type = e.dtype(scores), precise = softmax_type(e, type);
  TensorId p = e.emit("Softmax", {e.cast(scores, precise)}, {{"axis", int64_t{-1}}});
  p = e.cast(p, type);
  if (!may_hide_all) return p;
  const TensorId largest = e.emit("ReduceMax", {scores, e.ints({-1})});
  return e.emit("Where", {e.emit("Equal", {largest, e.scalar(-INFINITY, type)}), e.scalar(0, type), p});
}

void check(Expander& e) {
  e.require(e.has(kPastKey) == e.has(kPastValue), "past_key and past_value must be given together");
  e.require(!e.has(kPastKey) || !e.has(kValidKeys), "past_key and nonpad_kv_seqlen exclude each other");
  e.require(e.rank(e.in(kQ)) == e.rank(e.in(kK)) && e.rank(e.in(kQ)) == e.rank(e.in(kV)),
            "Q, K and V are of ranks {}, {} and {}", e.rank(e.in(kQ)), e.rank(e.in(kK)), e.rank(e.in(kV)));
}

void expand_attention(Expander& e) {
  check(e);
  const bool merged = e.rank(e.in(kQ)) == 3;
  const TensorId q = by_heads(e, e.in(kQ), "q_num_heads");
  TensorId k = with_past(e, by_heads(e, e.in(kK), "kv_num_heads"), kPastKey);
  TensorId v = with_past(e, by_heads(e, e.in(kV), "kv_num_heads"), kPastValue);
  e.result(1, k);
  e.result(2, v);
  const Bias bias = make_bias(e, q, k);
  k = repeat_heads(e, k, q);
  v = e.cast(repeat_heads(e, v, q), e.dtype(q));

  // The stages, as qk_matmul_output_mode counts them.
  const TensorId scores = scaled_scores(e, q, k), capped = softcap(e, scores), biased = add_bias(e, capped, bias);
  const TensorId p = probabilities(e, biased, bias.may_hide_all);
  const TensorId stages[] = {scores, capped, biased, p};
  const int64_t mode = e.node.get_int("qk_matmul_output_mode", 0);
  e.require(mode >= 0 && mode <= 3, "attribute 'qk_matmul_output_mode' is {}, expected 0 to 3", mode);
  e.result(3, stages[mode]);

  const TensorId y = e.emit("MatMul", {p, v});
  e.result(0, merged ? merge_heads(e, y) : y);
}

}  // namespace

void register_attention(ExpansionRegistry& r) { r.add("Attention", expand_attention); }

}  // namespace ingot
