// ingot.Attention(Q, K, V, mask?) = softmax(scale Q K^T + mask) V for each batch and head, in one kernel
// (kernels/attention.h). The layouts say in which order batch, head, sequence and dim lie: "bhsd" or "bshd", for K also
// "bhds". K and V may have fewer heads than Q, each serving several. `causal`: query i sees keys j <= i +
// causal_offset. A boolean mask hides keys where it is false; any other is added. nan_to_zero: a query that sees no key
// gives zeros.
#include "kernels/attention.h"

#include <algorithm>
#include <cstddef>

#include "ops/layout.h"
#include "ops/via_f32.h"

namespace ingot {
namespace {

using kernel::AttentionParams;

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
  const Dim heads = at(q, l.q, 'h'), shared = at(k, l.k, 'h');
  ctx.require(!heads.is_const() || !shared.is_const() || (shared.value() > 0 && heads.value() % shared.value() == 0),
              "{} heads of K and V do not divide the {} of Q", shared.str(), heads.str());
  if (ctx.has(3)) broadcast(ctx, {at(q, l.q, 'b'), heads, at(q, l.q, 's'), at(k, l.k, 's')}, ctx.shape(3));
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
  std::vector<int64_t> dims, strides;
  std::string layout;
  int64_t size(char axis) const { return dims[place(layout, axis)]; }
  int64_t stride(char axis) const { return size(axis) == 1 ? 0 : strides[place(layout, axis)]; }
};
Placed placed(Operand operand, const std::vector<int64_t>& dims, const std::string& layout) {
  return {operand, dims, strides_of(dims), layout};
}

// The kernel reads rows of dim: a transposed K is turned first.
Placed with_dim_last(LowerContext& ctx, const Placed& x) {
  if (x.layout.back() == 'd') return x;
  const std::vector<int64_t> dims = {x.size('b'), x.size('h'), x.size('s'), x.size('d')};
  const Operand turned = ctx.shared_temporary(4 * product_of(dims));
  const StridedCopy copy{dims,
                         {x.strides[place(x.layout, 'b')], x.strides[place(x.layout, 'h')],
                          x.strides[place(x.layout, 's')], x.strides[place(x.layout, 'd')]},
                         strides_of(dims)};
  emit_copy(ctx, x.operand, turned, 4, copy);
  return placed(turned, dims, "bhsd");
}

void set_mask(const LowerContext& ctx, AttentionParams& p) {
  if (!ctx.has(3)) return;
  p.mask_kind = ctx.in(3).dtype == DType::Bool ? kernel::kBooleanMask : kernel::kAdditiveMask;
  auto dims = ctx.dims(3);
  dims.insert(dims.begin(), 4 - std::min<size_t>(4, dims.size()), 1);
  const Placed m = placed({}, dims, "bhqk");
  p.mask_batch = m.stride('b');
  p.mask_head = m.stride('h');
  p.mask_q = m.stride('q');
  p.mask_k = m.stride('k');
}

constexpr int64_t kUnitsWanted = 8, kLeastQueries = 32;

void lower(LowerContext& ctx) {
  if (ctx.in(0).dtype != DType::F32) ctx.fail("is served for f16, bf16 and f32, not for {}", name(ctx.in(0).dtype));
  const Layouts l(ctx.node);
  const Placed q = placed(ctx.input(0), ctx.dims(0), l.q);
  const Placed k = with_dim_last(ctx, placed(ctx.input(1), ctx.dims(1), l.k));
  const Placed v = placed(ctx.input(2), ctx.dims(2), l.v), out = placed(ctx.output(0), ctx.out_dims(0), l.out);
  AttentionParams p{};
  p.batch = q.size('b');
  p.heads = q.size('h');
  p.kv_heads = k.size('h');
  p.q_len = q.size('s');
  p.kv_len = k.size('s');
  p.qk_size = q.size('d');
  p.v_size = v.size('d');
  p.causal = ctx.node.get_int("causal", 0);
  p.causal_offset = ctx.node.get_int("causal_offset", 0);
  p.zero_masked_rows = ctx.node.get_int("nan_to_zero", 0);
  p.scale = ctx.node.get_float("scale", 1.f);
  p.key_block = kernel::attention_key_block(p.kv_len);
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
  if (ctx.has(3)) s.operands.push_back(ctx.input(3));
  s.operands.push_back(out.operand);
  s.params = params_of(p);
  s.structure = offsetof(AttentionParams, key_block) / sizeof(int64_t);
  s.units = p.v_size == 0 ? 0 : kernel::attention_units(p);
  s.scratch = kernel::attention_scratch_bytes(p);
  s.specialise = false;  // free sequence lengths leave little to know, and its many tiles take seconds to compile
}

}  // namespace

void register_attention(OpRegistry& r) { r.add({"Attention", "ingot", 3, 4, 1, 1, infer, with_halves<lower>}); }

}  // namespace ingot
