// Attention against its definition in double, over random shapes, strides and masks. Compiled once for each build
// together with the kernel, like gemm_test.cpp.
#include "../../src/kernels/attention.cpp"

#include "reference.h"

namespace ingot::kernel {
namespace {

struct AttentionCase {
  AttentionParams p{};
  std::vector<float> q, k, v, mask, out;
  std::vector<uint8_t> keep;
};

// Tensors are [batch][seq][head][size] or [batch][head][seq][size].
void set_strides(bool heads_inside, int64_t heads, int64_t seq, int64_t size, int64_t& batch_stride,
                 int64_t& head_stride, int64_t& seq_stride) {
  batch_stride = heads * seq * size;
  head_stride = heads_inside ? size : seq * size;
  seq_stride = heads_inside ? heads * size : size;
}

AttentionCase make_case(AttentionParams p, bool heads_inside, bool full_mask, Random& random) {
  AttentionCase t;
  p.lanes = kLanes;
  if (p.kv_heads == 0) p.kv_heads = p.heads;
  if (p.key_block == 0) p.key_block = attention_key_block(kLanes, p.kv_len);
  if (p.q_blocks == 0) p.q_blocks = 1;
  if (p.scale == 0) p.scale = 1 / std::sqrt(double(p.qk_size));
  set_strides(heads_inside, p.heads, p.q_len, p.qk_size, p.q_batch, p.q_head, p.q_seq);
  set_strides(heads_inside, p.kv_heads, p.kv_len, p.qk_size, p.k_batch, p.k_head, p.k_seq);
  set_strides(heads_inside, p.kv_heads, p.kv_len, p.v_size, p.v_batch, p.v_head, p.v_seq);
  set_strides(heads_inside, p.heads, p.q_len, p.v_size, p.out_batch, p.out_head, p.out_seq);
  p.mask_k = 1;
  if (full_mask)
    p.mask_q = p.kv_len, p.mask_head = p.q_len * p.kv_len, p.mask_batch = p.heads * p.mask_head;
  else
    p.mask_batch = p.kv_len;
  t.p = p;
  t.q = random.values(p.batch * p.q_batch), t.k = random.values(p.batch * p.k_batch);
  t.v = random.values(p.batch * p.v_batch), t.out.assign(p.batch * p.out_batch, kUntouched);
  int64_t mask_size = p.batch * p.mask_batch;
  t.mask = random.values(mask_size), t.keep.resize(mask_size);
  for (int64_t i = 0; i < mask_size; i++) {
    t.keep[i] = random.in(0, 3) != 0;
    if (random.in(0, 5) == 0) t.mask[i] = -INFINITY;
  }
  return t;
}

// The first `length` rows of each head in memory of their own, [batch][head][length][size].
std::vector<float> first_rows(const std::vector<float>& x, const AttentionParams& p, int64_t length, int64_t size,
                              int64_t batch_stride, int64_t head_stride, int64_t seq_stride) {
  std::vector<float> out;
  for (int64_t b = 0; b < p.batch; b++)
    for (int64_t h = 0; h < p.kv_heads; h++)
      for (int64_t j = 0; j < length; j++) {
        const auto row = x.begin() + b * batch_stride + h * head_stride + j * seq_stride;
        out.insert(out.end(), row, row + size);
      }
  return out;
}

// Rounds keys or values to p.kv_type; what the kernel reads of them is in `narrow` then, if that is not f32.
void* as_kv_type(const AttentionParams& p, std::vector<float>& x, std::vector<uint16_t>& narrow) {
  if (p.kv_type == kF32Keys) return x.data();
  for (float& f : x) {
    const VF v = VF(f);
    narrow.push_back(p.kv_type == kF16Keys ? f32_to_f16(v)[0] : f32_to_bf16(v)[0]);
    f = p.kv_type == kF16Keys ? f16_to_f32(VH(narrow.back()))[0] : bf16_to_f32(VH(narrow.back()))[0];
  }
  return narrow.data();
}

void run(AttentionCase& t, Random& random) {
  AttentionParams p = t.p;
  p.kv_type = random.in(0, 2);
  std::vector<float> past_k, past_v;
  if (attention_in_place(p) && p.kv_len > 0 && random.coin()) {
    p.past_len = random.in(1, p.kv_len);
    past_k = first_rows(t.k, p, p.past_len, p.qk_size, p.k_batch, p.k_head, p.k_seq);
    past_v = first_rows(t.v, p, p.past_len, p.v_size, p.v_batch, p.v_head, p.v_seq);
    set_strides(false, p.kv_heads, p.past_len, p.qk_size, p.past_k_batch, p.past_k_head, p.past_k_seq);
    set_strides(false, p.kv_heads, p.past_len, p.v_size, p.past_v_batch, p.past_v_head, p.past_v_seq);
  }
  int64_t units = attention_units(p), floats = attention_scratch_bytes(p) / 4;
  std::vector<float> memory(floats + 32, NAN);
  auto* scratch = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
  scratch[floats] = kUntouched;
  void* mask = p.mask_kind == kBooleanMask ? static_cast<void*>(t.keep.data()) : t.mask.data();
  std::vector<uint16_t> narrow[4];
  const int64_t element = p.kv_type == kF32Keys ? 4 : 2;
  auto* k = static_cast<char*>(as_kv_type(p, t.k, narrow[0])) + p.past_len * p.k_seq * element;
  auto* v = static_cast<char*>(as_kv_type(p, t.v, narrow[1])) + p.past_len * p.v_seq * element;
  std::vector<void*> operands = {t.q.data(), k, v};
  if (p.mask_kind) operands.push_back(mask);
  operands.insert(operands.end(), {t.out.data(), as_kv_type(p, past_k, narrow[2]), as_kv_type(p, past_v, narrow[3])});
  for (int64_t begin = 0; begin < units;) {
    int64_t end = random.coin() ? units : random.in(begin + 1, units);
    KernelCall call{operands.data(), reinterpret_cast<const int64_t*>(&p), nullptr, begin, end, scratch, 0};
    ASSERT_EQ(ingot_attention_f32(&call), kOk);
    begin = end;
  }
  EXPECT_EQ(scratch[floats], kUntouched) << "scratch overrun";
}

std::vector<double> expected_row(const AttentionCase& t, int64_t b, int64_t h, int64_t i) {
  const AttentionParams& p = t.p;
  int64_t kv = h / (p.heads / p.kv_heads);
  std::vector<double> s(p.kv_len), out(p.v_size, 0.0);
  double m = -INFINITY, sum = 0;
  for (int64_t j = 0; j < p.kv_len; j++) {
    for (int64_t d = 0; d < p.qk_size; d++)
      s[j] += double(t.q[b * p.q_batch + h * p.q_head + i * p.q_seq + d]) *
              t.k[b * p.k_batch + kv * p.k_head + j * p.k_seq + d];
    int64_t at = b * p.mask_batch + h * p.mask_head + i * p.mask_q + j * p.mask_k;
    s[j] *= p.scale;
    if (p.mask_kind == kAdditiveMask) s[j] += t.mask[at];
    if (p.mask_kind == kBooleanMask && !t.keep[at]) s[j] = -INFINITY;
    if (p.causal && j > i + p.causal_offset) s[j] = -INFINITY;
    m = std::max(m, s[j]);
  }
  for (double& x : s) x = std::exp(x - (m == -INFINITY && p.zero_masked_rows ? 0 : m)), sum += x;
  for (int64_t j = 0; j < p.kv_len; j++)
    for (int64_t d = 0; d < p.v_size; d++)
      out[d] +=
          s[j] / (sum == 0 && p.zero_masked_rows ? 1 : sum) * t.v[b * p.v_batch + kv * p.v_head + j * p.v_seq + d];
  if (p.kv_len == 0 && !p.zero_masked_rows) out.assign(p.v_size, NAN);
  return out;
}

void check(AttentionCase& t, Random& random) {
  run(t, random);
  const AttentionParams& p = t.p;
  SCOPED_TRACE(::testing::Message() << "heads " << p.heads << "/" << p.kv_heads << " q " << p.q_len << " kv "
                                    << p.kv_len << " sizes " << p.qk_size << "," << p.v_size << " mask " << p.mask_kind
                                    << " causal " << p.causal << " block " << p.key_block << " q_blocks "
                                    << p.q_blocks);
  for (int64_t b = 0; b < p.batch; b++)
    for (int64_t h = 0; h < p.heads; h++)
      for (int64_t i = 0; i < p.q_len; i++) {
        std::vector<double> expected = expected_row(t, b, h, i);
        for (int64_t d = 0; d < p.v_size; d++) {
          float actual = t.out[b * p.out_batch + h * p.out_head + i * p.out_seq + d];
          if (std::isnan(expected[d]))
            ASSERT_TRUE(std::isnan(actual)) << "head " << h << " query " << i << " column " << d << " is " << actual;
          else
            ASSERT_TRUE(close(expected[d], actual, 16)) << "head " << h << " query " << i << " column " << d;
        }
      }
}

TEST(Attention, Encoder) {
  Random random(1);
  for (int64_t size : {32, 64}) {
    AttentionCase t = make_case({.batch = 2, .heads = 3, .q_len = 128, .kv_len = 128, .qk_size = size, .v_size = size},
                                true, false, random);
    check(t, random);
  }
}

TEST(Attention, LongSequencesStream) {
  Random random(2);
  for (int64_t causal : {0, 1}) {
    AttentionCase t = make_case({.mask_kind = kBooleanMask,
                                 .causal = causal,
                                 .batch = 1,
                                 .heads = 1,
                                 .q_len = 7,
                                 .kv_len = 2500,
                                 .qk_size = 8,
                                 .v_size = 20,
                                 .causal_offset = 1200},
                                false, true, random);
    EXPECT_LT(t.p.key_block, t.p.kv_len);
    check(t, random);
  }
}

TEST(Attention, MaskedRows) {
  Random random(3);
  for (int64_t zero : {0, 1})
    for (int64_t kind : {kAdditiveMask, kBooleanMask})
      for (int64_t block : {attention_panel(kLanes), 3 * attention_panel(kLanes)}) {
        AttentionCase t = make_case({.mask_kind = kind,
                                     .zero_masked_rows = zero,
                                     .key_block = block,
                                     .batch = 1,
                                     .heads = 2,
                                     .q_len = 9,
                                     .kv_len = 40,
                                     .qk_size = 8,
                                     .v_size = 8},
                                    true, true, random);
        for (int64_t j = 0; j < 40; j++)  // query 4 sees nothing, query 5 nothing of the first block
          for (int64_t i : {4, 5})
            if (i == 4 || j < 16) t.mask[i * 40 + j] = -INFINITY, t.keep[i * 40 + j] = 0;
        check(t, random);
      }
}

TEST(Attention, RandomShapes) {
  Random random(4);
  for (int i = 0; i < 200; i++) {
    int64_t kv_heads = random.in(1, 3), q_len = random.in(1, 40), kv_len = random.in(1, 80);
    const bool few = i % 3 == 0;  // queries that read K and V where they are
    if (few) q_len = random.in(1, kAttentionFewQueries);
    AttentionCase t = make_case({.mask_kind = random.in(0, 2),
                                 .causal = random.coin(),
                                 .zero_masked_rows = random.coin(),
                                 .key_block = random.coin() ? 0 : attention_panel(kLanes) * random.in(1, 5),
                                 .q_blocks = random.in(1, 3),
                                 .batch = random.in(1, 2),
                                 .heads = kv_heads * random.in(1, 3),
                                 .kv_heads = kv_heads,
                                 .q_len = q_len,
                                 .kv_len = kv_len,
                                 .qk_size = few ? 8 * random.in(1, 5) : random.in(1, 40),
                                 .v_size = few ? 16 * random.in(1, 3) : random.in(1, 40),
                                 .causal_offset = random.coin() ? kv_len - q_len : random.in(-5, 5),
                                 .scale = random.coin() ? 0 : 0.7},
                                random.coin(), random.coin(), random);
    if (random.in(0, 3) == 0) t.p.mask_k = 0;
    check(t, random);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace ingot::kernel
