// GEMM with 8- and 4-bit weights beside the same product with weights of f32, specialised as the codegen does it. Six
// matrices in turn, so weights come from memory and not from cache.
#include "../../src/kernels/gemm.cpp"
#include "../../src/kernels/gemm_fixed.cpp"
#include "kernels/gemm_few.h"
#include "kernels/half.h"
#include "measure.h"

using namespace ingot;
using namespace ingot::kernel;

static constexpr int kMatrices = 6, kMostM = 512, kMost = 4096;
static float *a = measure::floats(kMostM * kMost, 1), *c = measure::floats(kMostM * kMost, 2),
             *packed = measure::floats(size_t(kMatrices) * kMost * (kMost + 64), 3);
static uint8_t* random_bytes = measure::bytes(1 << 20, 4);
static char* scratch = measure::memory_for<char>(16 << 20);

extern "C" __attribute__((always_inline)) inline VF ingot_hook_epilogue(VF acc, void* const*, const EpilogueOperand*,
                                                                        int64_t, int64_t, int64_t, const ExprProgram*) {
  return acc;
}

struct Kind {
  GemmForm form;
  int64_t type, block, digits;
};
static constexpr int64_t kColumn = 1 << 20;  // one scale for a column
static constexpr Kind kF32{kGemmWide, kPanelF32, kColumn, 3}, kI8Wide{kGemmWide, kPanelI8, kColumn, 3},
    kI8Few{kGemmFew, kPanelI8, kColumn, 3}, kI8Fixed{kGemmFixed, kPanelI8, kColumn, 2},
    kU4Wide{kGemmWide, kPanelU4, 32, 3}, kU4Few{kGemmFew, kPanelU4, 32, 3}, kU4Few16{kGemmFew, kPanelU4, 32, 2},
    kU4Fixed{kGemmFixed, kPanelU4, 32, 2};

template <int M, int N, int K, const Kind& kind>
static GemmParams params_of() {
  GemmParams p{};
  p.panel = best_panel(kLanes, N), p.b_packed = 1, p.b_type = kind.type, p.b_half = kind.type == kPanelU4;
  p.b_block = kind.block < K ? kind.block : K, p.b_zero = kind.type == kPanelU4 ? 8 : 0, p.a_digits = kind.digits;
  p.m = M, p.n = N, p.k = K, p.batch[0] = p.batch[1] = p.batch[2] = 1;
  p.a_row = K, p.a_col = 1, p.c_row = N;
  gemm_cut(p, kLanes, kind.form);
  return p;
}

// Sums of one row and 4-bit weights: by vpdpbusd where the target has it (gemm_row_dot.cpp).
#if defined(INGOT_ADDS_BYTE_PRODUCTS)
template <int M, const Kind& kind>
using FewSum = std::conditional_t<M == 1 && kind.type == kPanelU4, VI, Shorts>;
#else
template <int M, const Kind& kind>
using FewSum = Shorts;
#endif

template <int M, int N, int K, const Kind& kind>
static __attribute__((noinline)) void gemm_of(void** operands) {
  constexpr int NR = int(best_panel(kLanes, N));
  GemmParams p = params_of<M, N, K, kind>();
  KernelCall call{operands, reinterpret_cast<const int64_t*>(&p), nullptr, 0, gemm_units(p), scratch, 0};
  for_groups(&call, div_up(N, NR), p.m_blocks,
             [&](int64_t entry, int64_t block, bool fresh, int64_t first, int64_t last) INGOT_INLINED {
               if constexpr (kind.form == kGemmFixed)
                 gemm_fixed<NR>(&call, entry, block, fresh, first, last);
               else if constexpr (kind.form == kGemmWide)
                 gemm_block<NR>(&call, entry, block, fresh, first, last);
               else
                 gemm_few<NR, kind.type, FewSum<M, kind>, false>(&call, p, entry, fresh, first, last);
             });
}

// Random panels: whole numbers, and scales that are halves or floats.
template <int M, int N, int K, const Kind& kind>
static size_t fill() {
  const GemmParams p = params_of<M, N, K, kind>();
  if (kind.type == kPanelF32) return size_t(packed_floats(K, N, p.panel)) * 4;
  const NarrowPanels n = gemm_narrow(p);
  const size_t size = size_t(narrow_bytes(n, N));
  auto* bytes = reinterpret_cast<char*>(packed);
  for (size_t at = 0; at < size * kMatrices; at += 1 << 20)
    std::memcpy(bytes + at, random_bytes, std::min<size_t>(1 << 20, size * kMatrices - at));
  for (int64_t i = 0; i < kMatrices * div_up(N, p.panel); i++)
    for (int64_t g = 0; g < narrow_groups(n); g++) {
      auto* scale = const_cast<char*>(narrow_group(n, bytes + i * narrow_panel_bytes(n), g).scale);
      for (int64_t j = 0; j < n.panel; j++) {
        const float x = 0.001f;
        const uint16_t half = f32_to_f16(VF(x))[0];
        std::memcpy(scale + j * (n.half ? 2 : 4), n.half ? static_cast<const void*>(&half) : &x, n.half ? 2 : 4);
      }
    }
  return size;
}

template <int M, int N, int K, const Kind& kind>
static void run(const char* name) {
  for (size_t i = 0; i < size_t(kMatrices) * kMost * (kMost + 64) / 4 && kind.type == kPanelF32; i++) packed[i] = 0.01f;
  const size_t size = fill<M, N, K, kind>();
  int i = 0;
  auto r = measure::best(0.3, [&] {
    void* operands[] = {a, reinterpret_cast<char*>(packed) + size_t(i++ % kMatrices) * size, c};
    gemm_of<M, N, K, kind>(operands);
  });
  const double seconds = r.seconds, macs = double(M) * N * K;
  printf("M %4d N %4d K %4d %-16s %8.3f ms %6.1f %% of %.1f GMAC/s, %5.1f GB/s\n", M, N, K, name, seconds * 1e3,
         100 * macs / seconds * 1e-9 / r.peak, r.peak, 1e-9 * double(size) / seconds);
  fflush(stdout);
}

template <int M>
static void small() {
  run<M, 2816, 1024, kI8Few>("i8, few"), run<M, 2816, 1024, kI8Wide>("i8, wide");
  run<M, 2816, 1024, kI8Fixed>("i8, 16 bits");
  run<M, 2816, 1024, kU4Few>("u4, few"), run<M, 2816, 1024, kU4Wide>("u4, wide");
  run<M, 2816, 1024, kU4Fixed>("u4, 16 bits");
}
template <int M, int N, int K>
static void large() {
  run<M, N, K, kF32>("f32"), run<M, N, K, kI8Wide>("i8"), run<M, N, K, kU4Wide>("u4");
  run<M, N, K, kI8Fixed>("i8, 16 bits"), run<M, N, K, kU4Fixed>("u4, 16 bits");
}

int main() {
#if !defined(INGOT_ONLY_SMALL)
  large<512, 1024, 1024>(), large<512, 2816, 1024>(), large<512, 1024, 2816>();
#endif
#if !defined(INGOT_ONLY_LARGE)
  run<1, 4096, 4096, kI8Few>("i8"), run<1, 4096, 4096, kU4Few>("u4"), run<1, 4096, 4096, kU4Few16>("u4, 16 bits");
  small<2>(), small<4>(), small<8>(), small<9>(), small<16>(), small<32>();
#endif
}
