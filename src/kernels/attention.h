// Scaled dot-product attention, fp32:
//   out[b][h][i][:] = sum_j softmax_j( scale * Q[b][h][i] . K[b][g(h)][j] + mask[b][h][i][j] ) V[b][g(h)][j][:],
// g(h) = h / (heads / kv_heads). With `causal`, query i sees the keys j <= i + causal_offset only.
// A row of which every key is masked (all scores -inf) gives NaN as the formula does, or 0 with zero_masked_rows.
//
// Operands: Q, K, V, mask (only if mask_kind is not kNoMask), out, past K and past V (only if past_len is not 0). Keys
// and values, and those of the past, may be f16 or bf16, and are widened where they are read. The last dim of Q, K, V
// and out is contiguous; all other strides are free, so heads may be interleaved as a fused QKV projection leaves them.
// The first past_len of the kv_len keys and values are those of the past; only few queries may have one. Units: batch x
// heads x q_blocks. A unit packs K^T and V of its head once per block of keys; use one block of queries when batch *
// heads is enough for the threads. Few queries (a decoder writing a token) read K and V where they are.
//
// Keys are taken in blocks with a running maximum m and sum l per query (streaming softmax), so scratch does not grow
// with kv_len; up to kAttentionKeyBlock keys there is one block and nothing is rescaled:
//   m' = max(m, max_j s_j),  f = e^(m - m'),  l' = f l + sum_j e^(s_j - m'),  out' = f out + sum_j e^(s_j - m') V_j.
#pragma once
#include "kernels/abi.h"
#include "kernels/pack.h"

namespace ingot::kernel {

enum AttentionMask : int64_t {
  kNoMask = 0,
  kAdditiveMask = 1,  // float, added to the scaled scores
  kBooleanMask = 2,   // uint8_t, 0 hides the key
};

enum AttentionKeys : int64_t { kF32Keys = 0, kF16Keys = 1, kBF16Keys = 2 };

struct AttentionParams {
  int64_t lanes;    // of the target
  int64_t kv_type;  // AttentionKeys
  int64_t mask_kind, causal, zero_masked_rows;
  int64_t key_block;  // keys per pass; attention_key_block(lanes, kv_len)
  int64_t q_blocks;
  int64_t batch, heads, kv_heads, q_len, kv_len, qk_size, v_size;
  int64_t causal_offset;  // kv_len - q_len when the queries are the last of the keys
  double scale;
  int64_t q_batch, q_head, q_seq;
  int64_t k_batch, k_head, k_seq;
  int64_t v_batch, v_head, v_seq;
  int64_t out_batch, out_head, out_seq;
  int64_t mask_batch, mask_head, mask_q, mask_k;  // elements; 0 broadcasts
  int64_t past_len;
  int64_t past_k_batch, past_k_head, past_k_seq;
  int64_t past_v_batch, past_v_head, past_v_seq;
};
static_assert(sizeof(AttentionParams) == 39 * 8);

inline constexpr int64_t kAttentionKeyBlock = 1024, kAttentionFewQueries = 3;
INGOT_INLINE constexpr int64_t attention_panel(int64_t lanes) { return lanes == 16 ? 32 : 16; }

INGOT_INLINE int64_t attention_key_block(int64_t lanes, int64_t kv_len) {
  int64_t blocks = max_of(1, div_up(kv_len, kAttentionKeyBlock)), panel = attention_panel(lanes);
  return max_of(1, div_up(div_up(kv_len, blocks), panel)) * panel;
}
// Are K and V read where they are, not packed?
INGOT_INLINE bool attention_in_place(const AttentionParams& p) {
  return p.q_len <= kAttentionFewQueries && p.qk_size % max_of(8, p.lanes) == 0 &&
         p.v_size % attention_panel(p.lanes) == 0;
}
INGOT_INLINE int64_t attention_units(const AttentionParams& p) {
  return p.q_len == 0 ? 0 : p.batch * p.heads * p.q_blocks;
}

// Scratch, floats; P = attention_panel columns, panels as in kernels/pack.h:
//
//   K^T      [key_block / P][qk_size][P keys]         panels of keys
//   V        [v_size / P][key_block][P columns]       panels of columns of V; v_size is rounded up
//   scores   [kMostTileRows][key_block + 16]          of one tile of queries; the 16: attention_score_stride
//   m, l     [2][queries of the unit]                 running maximum and sum of each query
//   wide     [P][qk_size or v_size]                   rows of K or V as floats, if they are narrower
INGOT_INLINE int64_t attention_k_floats(const AttentionParams& p) { return p.key_block * p.qk_size; }
INGOT_INLINE int64_t attention_v_floats(const AttentionParams& p) {
  return p.key_block * div_up(p.v_size, attention_panel(p.lanes)) * attention_panel(p.lanes);
}
// Rows of scores are a cache line longer than the block, or the rows of a tile would share cache sets.
INGOT_INLINE int64_t attention_score_stride(const AttentionParams& p) { return p.key_block + 16; }
INGOT_INLINE int64_t attention_block_rows(const AttentionParams& p) {
  return div_up(p.q_len / p.q_blocks + 2 * kMostTileRows + 1, 16) * 16;
}
INGOT_INLINE int64_t attention_wide_floats(const AttentionParams& p) {
  return p.kv_type == kF32Keys ? 0 : attention_panel(p.lanes) * max_of(p.qk_size, p.v_size);
}
INGOT_INLINE int64_t attention_scratch_bytes(const AttentionParams& p) {
  int64_t floats = attention_k_floats(p) + attention_v_floats(p) + kMostTileRows * attention_score_stride(p) +
                   2 * attention_block_rows(p) + attention_wide_floats(p);
  return div_up(floats, 16) * 64;
}

INGOT_KERNEL(ingot_attention_f32);

}  // namespace ingot::kernel
