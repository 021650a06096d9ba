// GEMM at the shapes of transformer encoders, specialised as the codegen does it: constant params, inlined epilogue.
// Six matrices in turn, as six layers have them, so weights come from memory and not from cache.
#include "../../src/kernels/gemm.cpp"
#include "kernels/vmath.h"
#include "measure.h"

using namespace ingot;
using namespace ingot::kernel;

static constexpr int kMatrices = 6;
static float *a = measure::floats(1024 * 3072, 1), *w = measure::floats(3072 * 3072, 2, 0.05f),
             *c = measure::floats(1024 * 3072, 3), *res = measure::floats(1024 * 3072, 4),
             *bias = measure::floats(4096, 5), *packed = measure::floats(size_t(kMatrices) * 3072 * 800, 6),
             *scratch = measure::floats(1 << 20, 7);

enum EpilogueKind { kPlain, kBias, kGelu, kResidual };
static constexpr const char* kEpilogueNames[] = {"plain", "bias", "gelu", "residual"};

// The hook must be inlined into every specialisation with its own kind, hence a constant-folded parameter: the
// benchmark passes the kind in row_stride of an operand that no epilogue uses.
extern "C" __attribute__((always_inline)) inline VF ingot_hook_epilogue(VF acc, void* const* extra,
                                                                        const EpilogueOperand* strides, int64_t row,
                                                                        int64_t col, int64_t, const ExprProgram*) {
  auto at = [&](int i) { return static_cast<const float*>(extra[i]) + row * strides[i].row_stride + col; };
  switch (strides[5].row_stride) {
    case kBias:
      return acc + load(at(0));
    case kGelu: {
      VF x = acc + load(at(0)), h = 0.5f * x;
      return h + h * verf(x * 0.70710678f);
    }
    case kResidual:
      return acc + load(at(0)) + load(at(1));
    default:
      return acc;
  }
}

template <int M, int N, int K, int kind, int NR, int Slice = 0, int Blocks = 0, int Pack = 0>
static __attribute__((noinline)) void gemm_of(void** operands, int64_t begin, int64_t end) {
  GemmParams p{};
  p.panel = NR, p.b_packed = 1, p.a_packing = Pack, p.k_slice = Slice ? Slice : gemm_k_slice(K),
  p.m_blocks = Blocks ? Blocks : gemm_m_blocks(M);
  p.tile_rows = tallest_tile(M, tile_rows(kLanes, NR));
  p.m = M, p.n = N, p.k = K, p.batch[0] = p.batch[1] = p.batch[2] = 1;
  p.a_row = K, p.a_col = 1, p.c_row = N;
  p.extras = kind == kResidual ? 2 : kind != kPlain;
  p.extra[0] = {0, 1}, p.extra[1] = {N, 1}, p.extra[5] = {kind, 0};
  KernelCall call{operands, reinterpret_cast<const int64_t*>(&p), nullptr, begin, end, scratch};
  [[clang::always_inline]] ingot_gemm_f32(&call);
}

template <int M, int N, int K, int kind = kBias, int NR = int(best_panel(kLanes, N)), int Slice = 0, int Blocks = 0,
          int Pack = 0>
static void run() {
  int64_t size = packed_floats(K, N, NR), panels = div_up(N, NR);
  for (int i = 0; i < kMatrices; i++) pack_b(packed + i * size, w, K, N, N, 1, NR, 0, panels);
  double mac = double(M) * N * K;
  int64_t units = panels * (Blocks ? Blocks : gemm_m_blocks(M));
  auto r = measure::best(0.35, [&] {
    for (int i = 0; i < kMatrices; i++) {
      void* operands[] = {a, packed + i * size, c, bias, res};
      gemm_of<M, N, K, kind, NR, Slice, Blocks, Pack>(operands, 0, units);
    }
  });
  double seconds = r.seconds / kMatrices, worst = 0;
  for (int m = 0; m < M && kind < kGelu; m += 17)
    for (int n = 0; n < N; n += 5) {
      double x = kind == kBias ? bias[n] : 0;
      for (int k = 0; k < K; k++) x += double(a[m * K + k]) * w[int64_t(k) * N + n];
      worst = std::max(worst, std::abs(x - double(c[int64_t(m) * N + n])));
    }
  printf("M %4d N %4d K %4d panel %d slice %4d blocks %d %s %-8s %8.3f ms %5.1f %% of %.1f GMAC/s, %5.1f GB/s%s\n", M,
         N, K, NR, int(Slice ? Slice : gemm_k_slice(K)), int(Blocks ? Blocks : gemm_m_blocks(M)),
         Pack ? "pack" : "    ", kEpilogueNames[kind], seconds * 1e3, 100 * mac / seconds * 1e-9 / r.peak, r.peak,
         4e-9 * N * K / seconds, worst > 1e-2 ? "  WRONG" : "");
  fflush(stdout);
}

template <int M>
static void encoder() {
  run<M, 768, 768>(), run<M, 2304, 768>(), run<M, 3072, 768>(), run<M, 3072, 768, kGelu>();
  run<M, 768, 3072>(), run<M, 768, 3072, kResidual>();
  run<M, 384, 384>(), run<M, 1152, 384>(), run<M, 1536, 384>(), run<M, 1536, 384, kGelu>();
  run<M, 384, 1536>(), run<M, 384, 1536, kResidual>();
}

// Every width of a panel on one matrix.
template <int M, int N, int K>
static void widths() {
  run<M, N, K, kBias, 16>();
  if constexpr (kLanes < 16) run<M, N, K, kBias, 24>();
  if constexpr (kLanes == 16) run<M, N, K, kBias, 32>(), run<M, N, K, kBias, 48>(), run<M, N, K, kBias, 64>();
}

int main(int argc, char**) {
  encoder<128>(), encoder<32>();
  run<1, 768, 768>(), run<1, 3072, 768>(), run<1, 768, 3072>();
  run<2, 768, 3072>(), run<4, 768, 3072>(), run<8, 768, 3072>();
  if (argc > 1) {  // alternatives
    widths<128, 768, 768>(), widths<32, 768, 768>(), widths<3136, 64, 64>(), widths<196, 256, 1024>();
    constexpr int kPanel = int(best_panel(kLanes, 768));
    run<128, 768, 3072, kBias, kPanel, 512>(), run<128, 768, 3072, kBias, kPanel, 1024>();
    run<1024, 768, 768, kBias, kPanel, 768, 4>(), run<1024, 768, 768>(), run<1024, 768, 768, kBias, kPanel, 768, 16>();
    run<1024, 768, 3072>(), run<197, 768, 768>(), run<197, 768, 768, kBias, kPanel, 768, 1>();
  }
}
