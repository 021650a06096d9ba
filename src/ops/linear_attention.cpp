// LinearAttention: see kernels/linear_attention.h. Heads are merged into the last dim of Q, K and V, [B, T, heads
// size]; the state is [B, heads of K, size of K, size of V]. Half precision is computed in f32.
#include "kernels/linear_attention.h"

#include <cmath>

#include "ops/layout.h"
#include "ops/via_f32.h"

namespace ingot {
namespace {

enum Input : size_t { kQuery, kKey, kValue, kPast, kDecay, kBeta };

struct Rule {
  bool gated, delta;
};
Rule rule_of(const Node& node) {
  const std::string rule = node.get_string("update_rule", "gated_delta");
  if (rule != "linear" && rule != "gated" && rule != "delta" && rule != "gated_delta")
    invalid_model("{}: update_rule is '{}', expected linear, gated, delta or gated_delta", node.label(), rule);
  return {rule.starts_with("gated"), rule.ends_with("delta")};
}

Dim head_size(const InferContext& ctx, size_t i, int64_t heads) {
  const Shape& s = ctx.shape(i);
  ctx.require(s.size() == 3, "operand {} is {}, expected [B, T, heads size]", i, str(s));
  ctx.require(!s[2].is_const() || s[2].value() % heads == 0, "{} heads do not divide operand {}, {}", heads, i, str(s));
  return floor_div(s[2], heads);
}

// Operand i is [B, T, one of these].
void check_gate(const InferContext& ctx, size_t i, bool wanted, const Dim& one, const Dim& other) {
  ctx.require(ctx.has(i) == wanted, "update_rule '{}' and operand {} do not go together",
              ctx.node.get_string("update_rule", "gated_delta"), i);
  if (!wanted) return;
  const Shape &q = ctx.shape(kQuery), &s = ctx.shape(i);
  ctx.require(s.size() == 3 && may_equal(s[0], q[0]) && may_equal(s[1], q[1]) &&
                  (may_equal(s[2], one) || may_equal(s[2], other)),
              "operand {} is {}, expected {} by {} or {}", i, str(s), str({q[0], q[1]}), one.str(), other.str());
}

void infer(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(kQuery));
  ctx.set_dtype(1, ctx.dtype(ctx.has(kPast) ? kPast : kQuery));
  const int64_t q_heads = ctx.node.need_int("q_num_heads"), heads = ctx.node.need_int("kv_num_heads");
  ctx.require(q_heads > 0 && heads > 0 && q_heads % heads == 0, "{} heads of K do not divide the {} of Q", heads,
              q_heads);
  const Shape &q = ctx.shape(kQuery), &k = ctx.shape(kKey), &v = ctx.shape(kValue);
  const Dim size = head_size(ctx, kQuery, q_heads), k_size = head_size(ctx, kKey, heads),
            v_size = head_size(ctx, kValue, heads);
  ctx.require(may_equal(size, k_size), "heads of Q have {} values, those of K {}", size.str(), k_size.str());
  for (size_t d = 0; d < 2; d++)
    ctx.require(may_equal(q[d], k[d]) && may_equal(q[d], v[d]), "Q {}, K {} and V {} differ in dim {}", str(q), str(k),
                str(v), d);
  const Rule rule = rule_of(ctx.node);
  check_gate(ctx, kDecay, rule.gated, heads, k_size * heads);
  check_gate(ctx, kBeta, rule.delta, heads, 1);
  const Shape state = {q[0], heads, k_size, v_size};
  if (ctx.has(kPast)) {
    const Shape& past = ctx.shape(kPast);
    bool fits = past.size() == 4;
    for (size_t d = 0; fits && d < 4; d++) fits = may_equal(past[d], state[d]);
    ctx.require(fits, "the past state is {}, expected {}", str(past), str(state));
  }
  ctx.set_shape(0, {q[0], q[1], v_size * q_heads});
  ctx.set_shape(1, state);
}

void lower(LowerContext& ctx) {
  const auto q = ctx.dims(kQuery), v = ctx.dims(kValue);
  if (ctx.in(kQuery).dtype != DType::F32) ctx.fail("is served for f16, bf16 and f32");
  const Rule rule = rule_of(ctx.node);
  LinearAttentionParams p{};
  p.gated = rule.gated;
  p.delta = rule.delta;
  p.length = q[1];
  p.q_heads = ctx.node.need_int("q_num_heads");
  p.kv_heads = ctx.node.need_int("kv_num_heads");
  p.qk_size = q[2] / p.q_heads;
  p.v_size = v[2] / p.kv_heads;
  // A head with one value has one number for it either way.
  p.decay_size = rule.gated && ctx.dims(kDecay)[2] != p.kv_heads ? p.qk_size : 1;
  p.beta_heads = rule.delta && ctx.dims(kBeta)[2] == 1 ? 1 : p.kv_heads;
  const float scale = ctx.node.get_float("scale", 0);
  p.scale = scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(p.qk_size));
  const int64_t states = q[0] * p.kv_heads, bytes = 4 * p.qk_size * p.v_size;
  Step& s = ctx.step(ingot_linear_attention_kernel);
  for (size_t i = 0; i <= kBeta; i++) s.operands.push_back(ctx.input(i));
  s.operands.push_back(ctx.output(0));
  s.operands.push_back(ctx.has_out(1) ? ctx.output(1) : LowerContext::temporary(states * bytes));
  s.params = params_of(p);
  s.units = states;
  s.grain = grain_for(bytes * (p.length + 1));
  s.scratch = 4 * p.v_size;
}

}  // namespace

void register_linear_attention(OpRegistry& r) { r.add({"LinearAttention", "", 3, 6, 1, 2, infer, with_halves<lower>}); }

}  // namespace ingot
