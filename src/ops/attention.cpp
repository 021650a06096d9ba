// ingot.Attention(Q, K, V, mask?, past_K?, past_V?, length?) = softmax(scale Q K^T + mask) V for each batch and head,
// in one kernel (kernels/attention.h); K and V follow what is given as past. The layouts say in which order batch,
// head, sequence and dim lie: "bhsd" or "bshd", for K also "bhds". K and V may have fewer heads than Q, each serving
// several. `causal`: query i sees keys j <= i + causal_offset; with causal_end the offset is such that the last
// query sees all keys. A boolean mask hides keys where it is false; any other is added. nan_to_zero: a query that sees
// no key gives zeros. `length`: so many rows of the past, or of K and V where there is none, are there; the memory has
// room for more (ops/rows.h).
#include "kernels/attention.h"

#include <algorithm>
#include <cstddef>

#include "ops/layout.h"
#include "ops/via_f32.h"

namespace ingot {
namespace {

using kernel::AttentionParams;

enum Input : size_t { kQ, kK, kV, kMask, kPastK, kPastV, kLength };

size_t place(const std::string& layout, char axis) { return layout.find(axis); }

std::string layout_of(const Node& node, const char* attr, bool key) {
  const std::string layout = node.get_string(attr, "bhsd");
  if (layout != "bhsd" && layout != "bshd" && !(key && layout == "bhds"))
    invalid_model("{}: attribute '{}' is '{}', expected bhsd or bshd{}", node.label(), attr, layout,
                  key ? " or bhds" : "");
  return layout;
}
struct Layouts {
  explicit Layouts(const Node& n)
      : q(layout_of(n, "layout_q", false)),
        k(layout_of(n, "layout_k", true)),
        v(layout_of(n, "layout_v", false)),
        out(layout_of(n, "layout_out", false)) {}
  std::string q, k, v, out;
};

void require_same(const InferContext& ctx, const Dim& a, const Dim& b, const char* what) {
  ctx.require(!a.is_const() || !b.is_const() || a == b, "{} differ: {} and {}", what, a.str(), b.str());
}

void infer(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  for (size_t i = 1; i < 3; i++)
    ctx.require(ctx.dtype(i) == ctx.dtype(0), "operand {} is {}, Q is {}", i, name(ctx.dtype(i)), name(ctx.dtype(0)));
  const Layouts l(ctx.node);
  const Shape &q = ctx.shape(0), &k = ctx.shape(1), &v = ctx.shape(2);
  ctx.require(q.size() == 4 && k.size() == 4 && v.size() == 4, "Q {}, K {}, V {} must have rank 4", str(q), str(k),
              str(v));
  auto at = [](const Shape& s, const std::string& layout, char axis) { return s[place(layout, axis)]; };
  require_same(ctx, at(q, l.q, 'd'), at(k, l.k, 'd'), "the dims of Q and K");
  require_same(ctx, at(k, l.k, 's'), at(v, l.v, 's'), "the lengths of K and V");
  require_same(ctx, at(k, l.k, 'h'), at(v, l.v, 'h'), "the heads of K and V");
  const auto length = ctx.has(kLength) ? ctx.values(kLength) : std::nullopt;
  Dim keys = length && !ctx.has(kPastK) ? length->at(0) : at(k, l.k, 's');
  ctx.require(ctx.has(kPastK) == ctx.has(kPastV), "one past is given without the other");
  if (ctx.has(kPastK)) {
    const Shape &past_k = ctx.shape(kPastK), &past_v = ctx.shape(kPastV);
    ctx.require(ctx.dtype(kPastK) == ctx.dtype(0) && ctx.dtype(kPastV) == ctx.dtype(0), "the past has another type");
    ctx.require(past_k.size() == 4 && past_v.size() == 4, "the past of K {} and V {} must have rank 4", str(past_k),
                str(past_v));
    for (char axis : {'b', 'h', 'd'}) {
      require_same(ctx, at(past_k, l.k, axis), at(k, l.k, axis), "dims of K and its past");
      require_same(ctx, at(past_v, l.v, axis), at(v, l.v, axis), "dims of V and its past");
    }
    require_same(ctx, at(past_k, l.k, 's'), at(past_v, l.v, 's'), "the lengths of the past of K and V");
    keys = keys + (length ? length->at(0) : at(past_k, l.k, 's'));
  }
  const Dim heads = at(q, l.q, 'h'), shared = at(k, l.k, 'h');
  ctx.require(!heads.is_const() || !shared.is_const() || (shared.value() > 0 && heads.value() % shared.value() == 0),
              "{} heads of K and V do not divide the {} of Q", shared.str(), heads.str());
  if (ctx.has(kMask)) broadcast(ctx, {at(q, l.q, 'b'), heads, at(q, l.q, 's'), keys}, ctx.shape(kMask));
  Shape out(4);
  out[place(l.out, 'b')] = at(q, l.q, 'b');
  out[place(l.out, 'h')] = heads;
  out[place(l.out, 's')] = at(q, l.q, 's');
  out[place(l.out, 'd')] = at(v, l.v, 'd');
  ctx.set_shape(0, std::move(out));
}

// An operand with its strides by axis; dims of one element are broadcast.
struct Placed {
  Operand operand;
  int64_t bytes;  // of an element
  std::vector<int64_t> dims, strides;
  std::string layout;
  int64_t size(char axis) const { return dims[place(layout, axis)]; }
  int64_t stride(char axis) const { return size(axis) == 1 ? 0 : strides[place(layout, axis)]; }
};
Placed placed(Operand operand, int64_t bytes, const std::vector<int64_t>& dims, const std::string& layout) {
  return {operand, bytes, dims, strides_of(dims), layout};
}

// The kernel reads rows of dim: a transposed K is turned first.
Placed with_dim_last(LowerContext& ctx, const Placed& x) {
  if (x.layout.back() == 'd') return x;
  const std::vector<int64_t> dims = {x.size('b'), x.size('h'), x.size('s'), x.size('d')};
  const Operand turned = ctx.shared_temporary(x.bytes * product_of(dims));
  const StridedCopy copy{dims,
                         {x.strides[place(x.layout, 'b')], x.strides[place(x.layout, 'h')],
                          x.strides[place(x.layout, 's')], x.strides[place(x.layout, 'd')]},
                         strides_of(dims)};
  emit_copy(ctx, x.operand, turned, x.bytes, copy);
  return placed(turned, x.bytes, dims, "bhsd");
}

// The past and what follows it as one tensor.
Placed joined(LowerContext& ctx, const Placed& past, const Placed& x) {
  Placed all = x;
  all.dims[place(x.layout, 's')] += past.size('s');
  all.strides = strides_of(all.dims);
  all.operand = ctx.shared_temporary(x.bytes * product_of(all.dims));
  emit_copy(ctx, past.operand, all.operand, x.bytes, {past.dims, past.strides, all.strides});
  emit_copy(ctx, x.operand, all.operand, x.bytes,
            {x.dims, x.strides, all.strides, 0, past.size('s') * all.strides[place(x.layout, 's')]});
  return all;
}

void set_mask(const LowerContext& ctx, AttentionParams& p) {
  if (!ctx.has(kMask)) return;
  p.mask_kind = ctx.in(kMask).dtype == DType::Bool ? kernel::kBooleanMask : kernel::kAdditiveMask;
  auto dims = ctx.dims(kMask);
  dims.insert(dims.begin(), 4 - std::min<size_t>(4, dims.size()), 1);
  const Placed m = placed({}, 0, dims, "bhqk");
  p.mask_batch = m.stride('b');
  p.mask_head = m.stride('h');
  p.mask_q = m.stride('q');
  p.mask_k = m.stride('k');
}

constexpr int64_t kUnitsWanted = 8, kLeastQueries = 32;

void lower(LowerContext& ctx) {
  if (ctx.in(0).dtype != DType::F32) ctx.fail("is served for f16, bf16 and f32, not for {}", name(ctx.in(0).dtype));
  const Layouts l(ctx.node);
  const Input grows = ctx.has(kPastK) ? kPastK : kK;  // whose memory `length` is about, and that of V beside it
  auto input = [&](Input i, const std::string& layout) {
    Placed x = placed(ctx.input(i), bits(ctx.in(i).dtype) / 8, ctx.dims(i), layout);
    if (ctx.has(kLength) && (i == grows || i == grows + 1)) x.dims[place(layout, 's')] = ctx.values(kLength)[0];
    return x;
  };
  const Placed q = input(kQ, l.q), out = placed(ctx.output(0), 4, ctx.out_dims(0), l.out);
  Placed k = input(kK, l.k), v = input(kV, l.v);
  AttentionParams p{};
  p.lanes = ctx.target.lanes;
  p.kv_type = ctx.in(kK).dtype == DType::F16    ? kernel::kF16Keys
              : ctx.in(kK).dtype == DType::BF16 ? kernel::kBF16Keys
                                                : kernel::kF32Keys;
  p.q_len = q.size('s');
  p.qk_size = q.size('d');
  p.v_size = v.size('d');
  std::vector<Operand> past;
  if (ctx.has(kPastK)) {
    const Placed past_k = input(kPastK, l.k), past_v = input(kPastV, l.v);
    if (past_k.size('s') > 0 && kernel::attention_in_place(p) && k.layout.back() == 'd') {
      past = {past_k.operand, past_v.operand};
      p.past_len = past_k.size('s');
      p.past_k_batch = past_k.stride('b');
      p.past_k_head = past_k.stride('h');
      p.past_k_seq = past_k.stride('s');
      p.past_v_batch = past_v.stride('b');
      p.past_v_head = past_v.stride('h');
      p.past_v_seq = past_v.stride('s');
    } else {
      k = joined(ctx, past_k, k);
      v = joined(ctx, past_v, v);
    }
  }
  k = with_dim_last(ctx, k);
  p.batch = q.size('b');
  p.heads = q.size('h');
  p.kv_heads = k.size('h');
  p.kv_len = p.past_len + k.size('s');
  p.causal = ctx.node.get_int("causal", 0);
  p.causal_offset = ctx.node.get_int("causal_end", 0) ? p.kv_len - p.q_len : ctx.node.get_int("causal_offset", 0);
  p.zero_masked_rows = ctx.node.get_int("nan_to_zero", 0);
  p.scale = ctx.node.get_float("scale", 1.f);
  p.key_block = kernel::attention_key_block(p.lanes, p.kv_len);
  // Every block of queries packs K and V again: only as many as the threads need.
  const int64_t pairs = std::max<int64_t>(1, p.batch * p.heads);
  p.q_blocks = std::max<int64_t>(1, std::min((kUnitsWanted + pairs - 1) / pairs, p.q_len / kLeastQueries));
  p.q_batch = q.stride('b');
  p.q_head = q.stride('h');
  p.q_seq = q.stride('s');
  p.k_batch = k.stride('b');
  p.k_head = k.stride('h');
  p.k_seq = k.stride('s');
  p.v_batch = v.stride('b');
  p.v_head = v.stride('h');
  p.v_seq = v.stride('s');
  p.out_batch = out.stride('b');
  p.out_head = out.stride('h');
  p.out_seq = out.stride('s');
  set_mask(ctx, p);
  Step& s = ctx.step(kernel::ingot_attention_f32_kernel);
  s.operands = {q.operand, k.operand, v.operand};
  if (ctx.has(kMask)) s.operands.push_back(ctx.input(kMask));
  s.operands.push_back(out.operand);
  s.operands.insert(s.operands.end(), past.begin(), past.end());
  s.params = params_of(p);
  s.units = p.v_size == 0 ? 0 : kernel::attention_units(p);
  s.scratch = kernel::attention_scratch_bytes(p);
  s.specialise = false;  // free sequence lengths leave little to know, and its many tiles take seconds to compile
}

// Keys and values are read as they are: those of a decoder are many, and few are new. Not where Q or the mask is the
// same tensor, of which one operand could then not be told from the other.
void lower_any(LowerContext& ctx) {
  if (!is_half(ctx.in(kQ).dtype)) return lower(ctx);
  const std::vector<size_t> keys = {kK, kV, kPastK, kPastV};
  const bool apart = std::none_of(keys.begin(), keys.end(), [&](size_t i) {
    return ctx.has(i) && (ctx.node.inputs[i] == ctx.node.inputs[kQ] ||
                          (ctx.has(kMask) && ctx.node.inputs[i] == ctx.node.inputs[kMask]));
  });
  lower_via_f32(ctx, lower, apart ? keys : std::vector<size_t>());
}

}  // namespace

void register_attention(OpRegistry& r) { r.add({"Attention", "ingot", 3, 7, 1, 1, infer, lower_any}); }

}  // namespace ingot
