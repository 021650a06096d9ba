// Attention at the shapes of transformer encoders, heads interleaved as a fused QKV projection leaves them, specialised
// as the codegen does it. The peak counts the two matrix products only.
#include "../../src/kernels/attention.cpp"
#include "measure.h"

using namespace ingot;
using namespace ingot::kernel;

extern "C" VF ingot_hook_epilogue(VF acc, void* const*, const EpilogueOperand*, int64_t, int64_t, int64_t,
                                  const ExprProgram*) {
  return acc;
}

static float *qkv = measure::floats(512 * 2304, 1), *out = measure::floats(512 * 768, 2),
             *mask = measure::floats(512, 3, 0.f), *scratch = measure::floats(1 << 20, 4);

template <int Seq, int Heads, int Size, int Masked>
static __attribute__((noinline)) void attention_of(void** operands) {
  AttentionParams p{};
  p.lanes = kLanes;
  int64_t hidden = Heads * Size;
  p.mask_kind = Masked ? kAdditiveMask : kNoMask, p.key_block = attention_key_block(kLanes, Seq), p.q_blocks = 1;
  p.batch = 1, p.heads = p.kv_heads = Heads, p.q_len = p.kv_len = Seq, p.qk_size = p.v_size = Size, p.scale = 0.125;
  p.q_head = p.k_head = p.v_head = p.out_head = Size;
  p.q_seq = p.k_seq = p.v_seq = 3 * hidden, p.out_seq = hidden, p.mask_k = 1;
  KernelCall call{operands, reinterpret_cast<const int64_t*>(&p), nullptr, 0, Heads, scratch};
  attention_body(&call);
}

template <int Seq, int Heads, int Size, int Masked>
static void run() {
  int hidden = Heads * Size;
  void* operands[] = {qkv, qkv + hidden, qkv + 2 * hidden, Masked ? mask : out, out};
  auto r = measure::best(0.5, [&] { attention_of<Seq, Heads, Size, Masked>(operands); });
  double macs = 2.0 * Seq * Seq * Size * Heads;
  printf("S %d heads %d x %d%s %8.3f ms %5.1f %% of %.1f GMAC/s\n", Seq, Heads, Size, Masked ? " masked" : "",
         r.seconds * 1e3, 100 * macs / r.seconds * 1e-9 / r.peak, r.peak);
}

int main() {
  run<128, 12, 64, 1>();
  run<128, 12, 32, 1>();
  run<197, 12, 64, 0>();
}
