#include "kernels/attention.h"

#include "kernels/microkernel.h"
#include "kernels/vmath.h"

namespace ingot::kernel {

inline constexpr int kNR = int(attention_panel(kLanes)), kNV = kNR / kLanes;
inline constexpr float kMinusInfinity = -__builtin_inff();

INGOT_INLINE VF larger(VF a, VF b) { return a > b ? a : b; }
INGOT_INLINE VI lane_index() {
  VI v;
  INGOT_UNROLL for (int i = 0; i < kLanes; i++) v[i] = i;
  return v;
}

// Calls f with a null pointer to the type of keys and values.
template <class F>
INGOT_INLINE void with_keys(const AttentionParams& p, F f) {
  if (p.kv_type == kF16Keys) return f(static_cast<const F16*>(nullptr));
  if (p.kv_type == kBF16Keys) return f(static_cast<const BF16*>(nullptr));
  f(static_cast<const float*>(nullptr));
}

// One head and its block of queries.
struct AttentionUnit {
  const float* q;
  const char *k, *v, *past_k, *past_v;  // of p.kv_type
  float* out;
  const void* mask;     // element (query 0, key 0) of this head
  int64_t mask_offset;  // of it, in elements
  Tiling tiling;
  int64_t first_tile, last_tile, first_row;
  float *keys, *values, *scores, *maxima, *sums, *wide;  // scratch
  bool in_place;                                         // K and V are not packed
};

INGOT_INLINE AttentionUnit attention_unit(const KernelCall* call, const AttentionParams& p, int64_t unit) {
  int64_t block = unit % p.q_blocks, h = unit / p.q_blocks % p.heads, b = unit / (p.q_blocks * p.heads);
  int64_t kv = h / (p.heads / p.kv_heads);
  int64_t size = p.kv_type == kF32Keys ? 4 : 2;
  auto in = [&](int i, int64_t offset)
                INGOT_INLINED { return static_cast<const char*>(call->operand[i]) + offset * size; };
  AttentionUnit u;
  u.q = static_cast<const float*>(call->operand[0]) + b * p.q_batch + h * p.q_head;
  u.k = in(1, b * p.k_batch + kv * p.k_head);
  u.v = in(2, b * p.v_batch + kv * p.v_head);
  u.mask = call->operand[3];
  u.mask_offset = b * p.mask_batch + h * p.mask_head;
  const int out = p.mask_kind == kNoMask ? 3 : 4;
  u.out = static_cast<float*>(call->operand[out]) + b * p.out_batch + h * p.out_head;
  if (p.past_len) {
    u.past_k = in(out + 1, b * p.past_k_batch + kv * p.past_k_head);
    u.past_v = in(out + 2, b * p.past_v_batch + kv * p.past_v_head);
  }
  u.tiling = cut_rows(p.q_len, kTileRows<kNR>);
  u.first_tile = u.tiling.count * block / p.q_blocks;
  u.last_tile = u.tiling.count * (block + 1) / p.q_blocks;
  u.first_row = tile_start(u.tiling, u.first_tile);
  u.keys = static_cast<float*>(call->scratch);
  u.values = u.keys + attention_k_floats(p);
  u.scores = u.values + attention_v_floats(p);
  u.maxima = u.scores + kMostTileRows * attention_score_stride(p);
  u.sums = u.maxima + attention_block_rows(p);
  u.wide = u.sums + attention_block_rows(p);
  u.in_place = attention_in_place(p);
  return u;
}

// Keys [first, first + len) of the sequence.
struct KeyBlock {
  int64_t first, len;
  bool is_first, is_last;
};

// Rows of `size` elements as floats, at most kNR of them: where they are, or in `to`.
struct WideRows {
  const float* at;
  int64_t stride;
};
INGOT_INLINE WideRows wide_rows(float*, const float* rows, int64_t, int64_t, int64_t stride) { return {rows, stride}; }
template <class T>
INGOT_INLINE WideRows wide_rows(float* to, const T* rows, int64_t count, int64_t size, int64_t stride) {
  for (int64_t i = 0; i < count; i++) {
    int64_t d = 0;
    for (; d + kLanes <= size; d += kLanes) store(to + i * size + d, widen(rows + i * stride + d));
    if (d == size) continue;
    T rest[kLanes] = {};
    __builtin_memcpy(rest, rows + i * stride + d, size_t(size - d) * sizeof(T));
    store_partial(to + i * size + d, widen(rest), size - d);
  }
  return {to, size};
}

// K^T as panels [qk_size][kNR keys]; V as panels [key_block][kNR columns], zero below len up to a multiple of kUnroll.
template <class T>
INGOT_INLINE void pack_keys(const AttentionParams& p, const AttentionUnit& u, const KeyBlock& keys) {
  const T* k = reinterpret_cast<const T*>(u.k) + keys.first * p.k_seq;
  const T* v = reinterpret_cast<const T*>(u.v) + keys.first * p.v_seq;
  for (int64_t j = 0; j < keys.len; j += kNR) {
    int64_t count = min_of(kNR, keys.len - j);
    WideRows rows = wide_rows(u.wide, k + j * p.k_seq, count, p.qk_size, p.k_seq);
    pack_panel<kNR>(u.keys + j * p.qk_size, rows.at, p.qk_size, count, 1, rows.stride);
    rows = wide_rows(u.wide, v + j * p.v_seq, count, p.v_size, p.v_seq);
    for (int64_t c = 0; c < p.v_size; c += kNR)
      pack_panel<kNR>(u.values + c * p.key_block + j * kNR, rows.at + c, count, p.v_size - c, rows.stride, 1);
  }
  int64_t end = div_up(keys.len, kUnroll) * kUnroll;
  for (int64_t c = 0; c < p.v_size; c += kNR)
    for (int64_t j = keys.len * kNR; j < end * kNR; j++) u.values[c * p.key_block + j] = 0.f;
}

template <class T>
INGOT_INLINE const T* key_row(const AttentionParams& p, const AttentionUnit& u, int64_t key) {
  return key < p.past_len ? reinterpret_cast<const T*>(u.past_k) + key * p.past_k_seq
                          : reinterpret_cast<const T*>(u.k) + (key - p.past_len) * p.k_seq;
}

// Products of queries with kNR keys from `key` on, of which `count` exist, from rows of K where they are.
template <class T, int MR>
INGOT_INLINE void dot_keys(const AttentionParams& p, const AttentionUnit& u, VF (&acc)[MR][kNV],
                           const float* const (&q)[MR], int64_t key, int64_t count) {
  INGOT_UNROLL for (int i = 0; i < MR; i++) INGOT_UNROLL for (int v = 0; v < kNV; v++) {
    const T* row[kLanes];
    VF sums[kLanes];
    INGOT_UNROLL for (int l = 0; l < kLanes; l++) {
      row[l] = key_row<T>(p, u, key + min_of(v * kLanes + l, count - 1));
      sums[l] = VF(0.f);
    }
    for (int64_t d = 0; d < p.qk_size; d += kLanes) {
      VF x = load(q[i] + d);
      INGOT_UNROLL for (int l = 0; l < kLanes; l++) sums[l] += x * widen(row[l] + d);
    }
    transpose(sums);
    acc[i][v] = sums[0];
    INGOT_UNROLL for (int l = 1; l < kLanes; l++) acc[i][v] += sums[l];
  }
}

// What is added to the scores of query i and keys [key, key + lanes): the mask as 0 or -inf if it is boolean.
INGOT_INLINE VF mask_values(const AttentionParams& p, const AttentionUnit& u, int64_t i, int64_t key, int64_t lanes) {
  int64_t at = u.mask_offset + i * p.mask_q + key * p.mask_k;
  VF v = VF(0.f);
  if (p.mask_kind == kAdditiveMask) {
    const float* m = static_cast<const float*>(u.mask) + at;
    if (p.mask_k == 1) return load_partial(m, lanes);
    for (int64_t j = 0; j < lanes; j++) v[j] = m[j * p.mask_k];
  } else {
    const uint8_t* m = static_cast<const uint8_t*>(u.mask) + at;
    if (p.mask_k == 1) {
      VI seen = __builtin_convertvector(load_partial(m, lanes), VI);
      return seen != 0 ? v : VF(kMinusInfinity);
    }
    for (int64_t j = 0; j < lanes; j++) v[j] = m[j * p.mask_k] ? 0.f : kMinusInfinity;
  }
  return v;
}

// Scores of MR queries from `row` on and the first `count` keys of the block; returns the maximum per query and lane.
template <int MR>
INGOT_INLINE void score_tile(const AttentionParams& p, const AttentionUnit& u, const KeyBlock& keys, int64_t row,
                             int64_t count, VF (&maxima)[MR]) {
  const float* q[MR];
  INGOT_UNROLL for (int i = 0; i < MR; i++) q[i] = u.q + (row + i) * p.q_seq, maxima[i] = VF(kMinusInfinity);
  int64_t stride = attention_score_stride(p);
  VF scale = VF(float(p.scale));
  Prefetch none{nullptr, 0};
  for (int64_t j = 0; j < count; j += kNR) {
    VF acc[MR][kNV];
    clear(acc);
    if (MR <= kAttentionFewQueries && u.in_place)
      with_keys(p, [&]<class T>(const T*) INGOT_INLINED { dot_keys<T>(p, u, acc, q, keys.first + j, keys.len - j); });
    else
      accumulate(acc, q, kUnroll, u.keys + j * p.qk_size, kNR, p.qk_size, none);
    INGOT_UNROLL for (int i = 0; i < MR; i++) INGOT_UNROLL for (int v = 0; v < kNV; v++) {
      int64_t in_block = j + v * kLanes, key = keys.first + in_block, lanes = min_of(kLanes, keys.len - in_block);
      VF s = acc[i][v] * scale;
      if (p.mask_kind != kNoMask && lanes > 0) s += mask_values(p, u, row + i, key, lanes);
      int64_t seen = keys.len - in_block;  // keys of this vector that exist and that the query may see
      if (p.causal) seen = min_of(seen, row + i + p.causal_offset + 1 - key);
      if (seen < kLanes) s = lane_index() < int32_t(max_of(0, seen)) ? s : VF(kMinusInfinity);
      maxima[i] = larger(maxima[i], s);
      store(u.scores + i * stride + in_block, s);
    }
  }
}

// Scores of one query become e^(s - m'); returns f, what the sums so far are to be multiplied with.
INGOT_INLINE float exponentials(const AttentionUnit& u, const KeyBlock& keys, float* scores, int64_t count, int64_t row,
                                VF lane_maxima) {
  float before = keys.is_first ? kMinusInfinity : u.maxima[row], m = max_lanes<float>(lane_maxima);
  m = m > before ? m : before;
  float reference = m == kMinusInfinity ? 0.f : m;  // nothing seen yet: every e^(-inf - 0) is 0, not NaN
  VF sum = VF(0.f);
  for (int64_t j = 0; j < count; j += kNR) INGOT_UNROLL for (int v = 0; v < kNV; v++) {
      VF e = vexp_falling(load(scores + j + v * kLanes) - reference);
      sum += e;
      store(scores + j + v * kLanes, e);
    }
  float factor = keys.is_first ? 0.f : vexp_falling(VF(before - reference))[0];
  u.maxima[row] = m;
  u.sums[row] = sum_lanes<float>(sum) + (keys.is_first ? 0.f : factor * u.sums[row]);
  return factor;
}

// acc += e V for columns from `column` on, where V is.
template <class T, int MR>
INGOT_INLINE void add_values(const AttentionParams& p, const AttentionUnit& u, VF (&acc)[MR][kNV],
                             const float* (&e)[MR], int64_t key, int64_t count, int64_t column) {
  Prefetch none{nullptr, 0};
  const int64_t past = max_of(0, min_of(count, p.past_len - key));
  const T *before = reinterpret_cast<const T*>(u.past_v), *now = reinterpret_cast<const T*>(u.v);
  if (past) accumulate(acc, e, kUnroll, before + key * p.past_v_seq + column, p.past_v_seq, past, none);
  const float* rest[MR];
  INGOT_UNROLL for (int i = 0; i < MR; i++) rest[i] = e[i] + past;
  const int64_t fresh = key + past - p.past_len;
  if (past < count) accumulate(acc, rest, kUnroll, now + fresh * p.v_seq + column, p.v_seq, count - past, none);
}

// out = f * out + e V, divided by the sum after the last block.
template <int MR>
INGOT_INLINE void weigh_values(const AttentionParams& p, const AttentionUnit& u, const KeyBlock& keys, int64_t row,
                               int64_t count, const float (&factor)[MR]) {
  const float* e[MR];
  float last[MR];
  INGOT_UNROLL for (int i = 0; i < MR; i++) {
    e[i] = u.scores + i * attention_score_stride(p);
    float sum = u.sums[row - u.first_row + i];
    last[i] = !keys.is_last ? 1.f : sum == 0.f && p.zero_masked_rows ? 0.f : 1.f / sum;
  }
  Prefetch none{nullptr, 0};
  for (int64_t c = 0; c < p.v_size; c += kNR) {
    VF acc[MR][kNV];
    clear(acc);
    if (MR <= kAttentionFewQueries && u.in_place)
      with_keys(p, [&]<class T>(const T*) INGOT_INLINED { add_values<T>(p, u, acc, e, keys.first, count, c); });
    else
      accumulate(acc, e, kUnroll, u.values + c * p.key_block, kNR, div_up(count, kUnroll) * kUnroll, none);
    INGOT_UNROLL for (int i = 0; i < MR; i++) INGOT_UNROLL for (int v = 0; v < kNV; v++) {
      int64_t lanes = min_of(kLanes, p.v_size - c - v * kLanes);
      float* out = u.out + (row + i) * p.out_seq + c + v * kLanes;
      if (lanes <= 0) continue;
      if (!keys.is_first) acc[i][v] += load_partial(out, lanes) * factor[i];
      store_partial(out, acc[i][v] * last[i], lanes);
    }
  }
}

// Not inlined: the tiles of every height exist once, and specialising them brings nothing (ops/attention.cpp).
template <int MR>
__attribute__((noinline)) static void attention_tile(const AttentionParams& p, const AttentionUnit& u,
                                                     const KeyBlock& keys, int64_t row) {
  int64_t count = keys.len;  // keys that any query of the tile sees
  if (p.causal) count = max_of(0, min_of(count, row + MR + p.causal_offset - keys.first));
  VF maxima[MR];
  score_tile(p, u, keys, row, count, maxima);
  float factor[MR];
  INGOT_UNROLL for (int i = 0; i < MR; i++) factor[i] =
      exponentials(u, keys, u.scores + i * attention_score_stride(p), count, row - u.first_row + i, maxima[i]);
  weigh_values(p, u, keys, row, count, factor);
}

INGOT_INLINE KernelStatus attention_body(const KernelCall* call) {
  const AttentionParams& p = *reinterpret_cast<const AttentionParams*>(call->param);
  int64_t blocks = max_of(1, div_up(p.kv_len, p.key_block));
  for (int64_t unit = call->begin; unit < call->end; unit++) {
    AttentionUnit u = attention_unit(call, p, unit);
    for (int64_t b = 0; b < blocks; b++) {
      int64_t first = b * p.key_block;
      KeyBlock keys{first, min_of(p.key_block, p.kv_len - first), b == 0, b == blocks - 1};
      if (!u.in_place) with_keys(p, [&]<class T>(const T*) INGOT_INLINED { pack_keys<T>(p, u, keys); });
      for_tiles<kTileRows<kNR>>(u.tiling, u.first_tile, u.last_tile, [&](auto h, int64_t tile) INGOT_INLINED {
        attention_tile<decltype(h)::value>(p, u, keys, tile_start(u.tiling, tile));
      });
    }
  }
  return kOk;
}

}  // namespace ingot::kernel

extern "C" ingot::KernelStatus ingot_attention_f32(const ingot::KernelCall* call) {
  return ingot::kernel::attention_body(call);
}
