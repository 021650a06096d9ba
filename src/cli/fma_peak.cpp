#include "cli/fma_peak.h"

#include <immintrin.h>

#include "cli/best_rate.h"

namespace ingot {
namespace {

// Twelve chains hide the latency of two units of four or five cycles.
__attribute__((target("avx2,fma"), noinline)) float run(int rounds) {
  constexpr int kChains = 12;
  const __m256 x = _mm256_set1_ps(0.999999F), y = _mm256_set1_ps(1e-7F);
  __m256 acc[kChains];
  for (auto& a : acc) a = y;
  for (int r = 0; r < rounds; r++) {
    for (auto& a : acc) {
      a = _mm256_fmadd_ps(a, x, y);
      asm volatile("" : "+x"(a));  // keeps the compiler from shortening the chain
    }
  }
  __m256 sum = acc[0];
  for (auto& a : acc) sum = _mm256_add_ps(sum, a);
  return _mm256_cvtss_f32(sum);
}

}  // namespace

double fma_peak(double seconds) {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
  constexpr int kRounds = 200'000;  // about 0.4 ms: short enough to fall between interruptions
  return best_rate(seconds, double(kRounds) * 12 * 8, [] { return run(kRounds); });
}

}  // namespace ingot
