// Timing for the kernel benchmarks: CPU time of this thread, minima over many repetitions, next to the multiply-add
// peak of the same moments, because cores are shared and clocks move.
#pragma once
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/vec.h"

namespace measure {

inline double cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

// GMAC/s of 12 independent chains of vectors of the build; takes about 0.3 ms.
inline __attribute__((noinline)) double fma_peak() {
  using ingot::kernel::VF;
  VF a[12], x = VF(0.999f), y = VF(1e-3f);
  for (int i = 0; i < 12; i++) a[i] = VF(1e-3f * float(i));
  const int iterations = 150000;
  double t = cpu_seconds();
  for (int k = 0; k < iterations; k++) {
#pragma clang loop unroll(full)
    for (int i = 0; i < 12; i++) {
      a[i] = a[i] * x + y;
      asm volatile("" : "+v"(a[i]));
    }
  }
  t = cpu_seconds() - t;
  VF s = a[0];
  for (int i = 1; i < 12; i++) s += a[i];
  volatile float sink = s[0];
  (void)sink;
  return iterations * 12.0 * ingot::kernel::kLanes / t * 1e-9;
}

// The best of many interleaved runs of `work` (returning MACs done) and of the peak probe.
struct Result {
  double seconds = 1e9, peak = 0;
};
template <class Work>
Result best(double budget_seconds, Work work) {
  Result r;
  double start = cpu_seconds();
  for (int i = 0; i < 8 || cpu_seconds() - start < budget_seconds; i++) {
    r.peak = std::max(r.peak, fma_peak());
    double t = cpu_seconds();
    work();
    r.seconds = std::min(r.seconds, cpu_seconds() - t);
  }
  return r;
}

inline float* floats(size_t n, unsigned seed, float scale = 1.f) {
  size_t bytes = (n * 4 + 4096 + 63) / 64 * 64;
  auto* p = static_cast<float*>(std::aligned_alloc(64, bytes));
  unsigned x = seed * 2654435761u + 1;
  for (size_t i = 0; i < n; i++) {
    x = x * 1664525u + 1013904223u;
    p[i] = scale * float(int(x >> 8) - (1 << 23)) / float(1 << 23);
  }
  return p;
}

}  // namespace measure
