// Timing for the kernel benchmarks: CPU time of this thread, minima over many repetitions, next to the multiply-add
// peak of the same moments, of floats or of bytes, because cores are shared and clocks move.
#pragma once
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/integer.h"
#include "kernels/vec.h"
#if defined(__AMX_INT8__)
#include "kernels/isa/amx.h"
#endif

namespace measure {

inline double cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

// GMAC/s of 12 independent chains a = step(a), each of `macs` multiply-adds; takes about 0.3 ms.
template <class V, class Step>
inline __attribute__((always_inline)) double rate_of_chains(double macs, Step step) {
  V a[12];
  for (int i = 0; i < 12; i++) a[i] = V(i);
  const int iterations = 150000;
  double t = cpu_seconds();
  for (int k = 0; k < iterations; k++) {
#pragma clang loop unroll(full)
    for (int i = 0; i < 12; i++) {
      a[i] = step(a[i]);
      asm volatile("" : "+v"(a[i]));
    }
  }
  t = cpu_seconds() - t;
  V s = a[0];
  for (int i = 1; i < 12; i++) s += a[i];
  volatile float sink = float(s[0]);
  (void)sink;
  return iterations * 12.0 * macs / t * 1e-9;
}

inline __attribute__((noinline)) double fma_peak() {
  using ingot::kernel::VF;
  const VF x = VF(0.999f), y = VF(1e-3f);
  return rate_of_chains<VF>(ingot::kernel::kLanes, [&](VF a) { return a * x + y; });
}

// Of tiles, vpdpbusd, or pmaddubsw with pmaddwd and paddd, whichever is the widest that the flags allow.
inline __attribute__((noinline)) double byte_peak() {
  using namespace ingot::kernel;
#if defined(__AMX_INT8__)
  TileShapes shapes;
  for (int i = 0; i < 8; i++) shapes.row_bytes[i] = 64, shapes.rows[i] = 16;
  set_tiles(shapes);
  const int iterations = 4000;
  double t = cpu_seconds();
  for (int k = 0; k < iterations; k++) {
    multiply_tiles<0, 6, 7>(), multiply_tiles<1, 6, 7>(), multiply_tiles<2, 6, 7>();
    multiply_tiles<3, 6, 7>(), multiply_tiles<4, 6, 7>(), multiply_tiles<5, 6, 7>();
  }
  int32_t sums[16 * 16];
  store_tile<0>(sums, 64);  // waits for the last product
  t = cpu_seconds() - t;
  release_tiles();
  return iterations * 6.0 * 16 * 16 * 64 / t * 1e-9;
#else
  Bytes u = Bytes(uint8_t(1));
  return rate_of_chains<VI>(4 * kLanes, [&](VI a) {
    asm volatile("" : "+v"(u));  // or its product would be computed once for all
#if defined(INGOT_ADDS_BYTE_PRODUCTS)
    return add_products(a, u, u);
#else
    return a + multiply_shorts(multiply_bytes(u, u), __builtin_bit_cast(Shorts, u));
#endif
  });
#endif
}

// The best of many interleaved runs of `work` and of the probe of the peak.
struct Result {
  double seconds = 1e9, peak = 0;
};
template <class Work>
Result best(double budget_seconds, Work work, double (*probe)() = fma_peak) {
  Result r;
  double start = cpu_seconds();
  for (int i = 0; i < 8 || cpu_seconds() - start < budget_seconds; i++) {
    r.peak = std::max(r.peak, probe());
    double t = cpu_seconds();
    work();
    r.seconds = std::min(r.seconds, cpu_seconds() - t);
  }
  return r;
}

// Memory for n elements, and somewhat more: whole vectors may be read.
template <class T>
T* memory_for(size_t n) {
  return static_cast<T*>(std::aligned_alloc(64, (n * sizeof(T) + 4096 + 63) / 64 * 64));
}
// Random numbers of 24 bits.
struct Random {
  unsigned state;
  explicit Random(unsigned seed) : state(seed * 2654435761u + 1) {}
  int next() { return int((state = state * 1664525u + 1013904223u) >> 8); }
};
inline float* floats(size_t n, unsigned seed, float scale = 1.f) {
  auto* p = memory_for<float>(n);
  Random random(seed);
  for (size_t i = 0; i < n; i++) p[i] = scale * float(random.next() - (1 << 23)) / float(1 << 23);
  return p;
}
inline uint8_t* bytes(size_t n, unsigned seed) {
  auto* p = memory_for<uint8_t>(n);
  Random random(seed);
  for (size_t i = 0; i < n; i++) p[i] = uint8_t(random.next() >> 16);
  return p;
}
inline uint8_t* copy_of(const void* from, size_t n) {
  auto* p = memory_for<uint8_t>(n);
  std::memcpy(p, from, n);
  return p;
}

}  // namespace measure
