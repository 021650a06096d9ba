// Products of bytes in each form that the target has (kernels/gemm_i8.h), specialised as the codegen does it: constant
// params, inlined epilogue, which requantizes and stores bytes. Several matrices in turn, as several layers have them,
// so weights come from memory and not from cache. The peak is that of the widest instruction for bytes in this target.
#include "../../src/kernels/gemm_i8_chained.cpp"
#include "../../src/kernels/gemm_i8_dot.cpp"
#include "../../src/kernels/gemm_i8_pairs.cpp"
#include "../../src/kernels/gemm_i8_rows.cpp"
#include "../../src/kernels/gemm_i8_tiles.cpp"

#include "../../src/planner/pack_i8.cpp"
#include "../../src/planner/pack_i8_chained.cpp"
#include "measure.h"
#if defined(__AMX_INT8__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

using namespace ingot;
using namespace ingot::kernel;

// y = round(acc * scale + bias) as u8; scale and bias of each column.
static __attribute__((always_inline)) inline VF requantized(VI acc, const float* scale, const float* bias) {
  const VF y = __builtin_convertvector(acc, VF) * load(scale) + load(bias);
  return __builtin_elementwise_min(__builtin_elementwise_max(y, VF(0.f)), VF(255.f));
}
extern "C" __attribute__((always_inline)) inline VI ingot_hook_bytes(VI acc, void* const* extra, const EpilogueOperand*,
                                                                     int64_t, int64_t col, int64_t,
                                                                     const ExprProgram*) {
  return nearest_int(
      requantized(acc, static_cast<const float*>(extra[0]) + col, static_cast<const float*>(extra[1]) + col));
}
extern "C" __attribute__((always_inline)) inline void ingot_hook_store(VI acc, void* out, int64_t at,
                                                                       void* const* extra,
                                                                       const EpilogueOperand* strides, int64_t row,
                                                                       int64_t col, int64_t lanes,
                                                                       const ExprProgram* program) {
  const VI y = ingot_hook_bytes(acc, extra, strides, row, col, lanes, program);
  store_partial(static_cast<uint8_t*>(out) + at, __builtin_convertvector(y, Vec<uint8_t>), lanes);
}

static constexpr int64_t kMost = 3136 * 3072, kMostColumns = 4096;
static constexpr size_t kWeightBytes = 24 << 20;  // so many in turn: more than the caches hold
static uint8_t *a = measure::bytes(kMost, 1), *c = measure::bytes(kMost, 2), *w = measure::bytes(kMost, 3),
               *scratch = measure::bytes(32 << 20, 4);
static float *scale = measure::floats(kMostColumns, 5, 1e-5f), *bias = measure::floats(kMostColumns, 6, 100.f);
static const uint8_t zero[kMostColumns] = {};

template <int M, int N, int K>
static __attribute__((always_inline)) inline GemmI8Params params_of(I8Form form) {
  GemmI8Params p{};
  p.form = form, p.b_packed = 1, p.b_signed = 1;
  p.a_zero = kOneZero, p.b_zero = kNoZero;
  p.m = M, p.n = N, p.lanes = kLanes;
  p.row_groups = i8_row_groups(form, M);
  if (i8_in_panels(form)) p.panel = i8_panel_columns(form, kLanes, N);
  for (int d = 0; d < 4; d++) p.row_dims[d] = d == 3 ? M : 1, p.row_stride[d] = d == 3 ? K : 0;
  for (int d = 0; d < 3; d++) p.runs[d] = p.batch[d] = 1;
  p.run_bytes = K;
  p.a_packing = i8_in_panels(form) && i8_must_copy(p);
  p.entry_row = M, p.c_row = N, p.c_bytes = kUnsignedBytes, p.extras = 2;
  return p;
}

template <int M, int N, int K, I8Form Form>
static __attribute__((noinline)) void product_of(void** operands) {
  const GemmI8Params p = params_of<M, N, K>(Form);
  KernelCall call{operands, reinterpret_cast<const int64_t*>(&p), nullptr, 0, i8_units(p), scratch, 0};
  if constexpr (Form == kI8Chained) [[clang::always_inline]]
    ingot_gemm_i8_chained(&call);
  if constexpr (Form == kI8Pairs) [[clang::always_inline]]
    ingot_gemm_i8_pairs(&call);
  if constexpr (Form == kI8Rows) [[clang::always_inline]]
    ingot_gemm_i8_rows(&call);
  if constexpr (Form == kI8Dot) [[clang::always_inline]]
    ingot_gemm_i8_dot(&call);
  if constexpr (Form == kI8Tiles) [[clang::always_inline]]
    ingot_gemm_i8_tiles(&call);
}

// Some results are not what the definition says, by more than a rounding?
template <int M, int N, int K>
static bool is_wrong() {
  for (int m = 0; m < M; m += 17)
    for (int n = 0; n < N; n += 5) {
      int64_t sum = 0;
      for (int k = 0; k < K; k++) sum += int64_t(a[int64_t(m) * K + k]) * int8_t(w[int64_t(k) * N + n]);
      const double y = std::clamp(double(sum) * double(scale[n]) + double(bias[n]), 0., 255.);
      if (std::abs(y - double(c[int64_t(m) * N + n])) > 0.51) return true;
    }
  return false;
}

template <int M, int N, int K, I8Form Form>
static void run(const char* form) {
  if (i8_scratch_bytes(params_of<M, N, K>(Form)) > 32 << 20) return;
  const PackedI8 packed = pack_i8(i8_matrix(w, K, N, N, 1, true), Form, kLanes);
  const size_t matrices = std::max<size_t>(1, kWeightBytes / packed.bytes.size());
  std::vector<uint8_t*> weights(matrices);
  for (auto& m : weights) m = measure::copy_of(packed.bytes.data(), packed.bytes.size());
  auto r = measure::best(
      0.35,
      [&] {
        for (uint8_t* m : weights) {
          void* operands[] = {a, m, c, const_cast<uint8_t*>(zero), const_cast<uint8_t*>(zero), scale, bias};
          product_of<M, N, K, Form>(operands);
        }
      },
      measure::byte_peak);
  for (uint8_t* m : weights) std::free(m);
  const double seconds = r.seconds / double(matrices), macs = double(M) * N * K;
  printf("M %4d N %4d K %4d %-8s %8.3f ms %5.1f %% of %.0f GMAC/s, %5.1f GB/s%s\n", M, N, K, form, seconds * 1e3,
         100 * macs / seconds * 1e-9 / r.peak, r.peak, 1e-9 * N * K / seconds, is_wrong<M, N, K>() ? "  WRONG" : "");
  fflush(stdout);
}

template <int M, int N, int K>
static void forms() {
  for (int64_t i = 0; i < int64_t(N) * K; i++) {  // nearly Gaussian: three quarters of a trained layer's words chain
    const uint8_t* r = a + 4 * i % (kMost - 4);
    w[i] = uint8_t((r[0] + r[1] + r[2] + r[3] - 510) / 4);
  }
  run<M, N, K, kI8Chained>("chained");
  run<M, N, K, kI8Pairs>("pairs");
  if constexpr (M <= i8_few_rows(kI8Rows)) run<M, N, K, kI8Rows>("rows");
#if defined(INGOT_ADDS_BYTE_PRODUCTS)
  run<M, N, K, kI8Dot>("dot");
#endif
#if defined(__AMX_INT8__)
  run<M, N, K, kI8Tiles>("tiles");
#endif
}

int main() {
#if defined(__AMX_INT8__)
  syscall(SYS_arch_prctl, 0x1023, 18);  // Linux gives tiles to those who ask
#endif
  forms<128, 768, 768>(), forms<128, 768, 3072>();  // an encoder
  forms<3136, 64, 64>(), forms<196, 256, 1024>();   // 1x1 layers of ResNet-50
  forms<1, 3072, 768>();                            // one token
}
