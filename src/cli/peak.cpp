#include "cli/peak.h"

#include <immintrin.h>

#include "base/error.h"
#include "cli/best_rate.h"

namespace ingot {
namespace {

// Twelve chains hide the latency of two units of four or five cycles.
constexpr int kChains = 12;
constexpr int kRounds = 100'000;  // about 0.2 ms: short enough to fall between interruptions

// INGOT_CHAINS(name, features, type, first, step): a function that does `step` to each of twelve `a`, kRounds times.
// The empty asm keeps the compiler from shortening a chain and from computing a product of `u` once for all.
#define INGOT_CHAINS(name, features, type, first, step)           \
  __attribute__((target(features), noinline)) float name() {      \
    type acc[kChains], u = (first), v = u;                        \
    for (auto& a : acc) a = u;                                    \
    for (int r = 0; r < kRounds; r++) {                           \
      for (auto& a : acc) {                                       \
        step;                                                     \
        asm volatile("" : "+v"(a), "+v"(u), "+v"(v));             \
      }                                                           \
    }                                                             \
    float sum = 0;                                                \
    for (auto& a : acc) sum += reinterpret_cast<float const&>(a); \
    return sum;                                                   \
  }

INGOT_CHAINS(multiply_add_128, "sse4.2", __m128, _mm_set1_ps(0.5F), a = _mm_add_ps(_mm_mul_ps(a, u), v))
INGOT_CHAINS(fma_256, "avx2,fma", __m256, _mm256_set1_ps(0.5F), a = _mm256_fmadd_ps(a, u, v))
INGOT_CHAINS(fma_512, "avx512f", __m512, _mm512_set1_ps(0.5F), a = _mm512_fmadd_ps(a, u, v))

INGOT_CHAINS(pairs_128, "sse4.2", __m128i, _mm_set1_epi8(1),
             a = _mm_add_epi32(a, _mm_madd_epi16(_mm_maddubs_epi16(u, v), v)))
INGOT_CHAINS(pairs_256, "avx2", __m256i, _mm256_set1_epi8(1),
             a = _mm256_add_epi32(a, _mm256_madd_epi16(_mm256_maddubs_epi16(u, v), v)))
INGOT_CHAINS(pairs_512, "avx512bw", __m512i, _mm512_set1_epi8(1),
             a = _mm512_add_epi32(a, _mm512_madd_epi16(_mm512_maddubs_epi16(u, v), v)))
INGOT_CHAINS(dot_256, "avx2,avxvnni", __m256i, _mm256_set1_epi8(1), a = _mm256_dpbusd_avx_epi32(a, u, v))
INGOT_CHAINS(dot_512, "avx512f,avx512vnni", __m512i, _mm512_set1_epi8(1), a = _mm512_dpbusd_epi32(a, u, v))
#undef INGOT_CHAINS

// Six sums in tiles of 16 rows of 64 bytes: a product takes 16 cycles, and its result is there after 52.
constexpr int kTileSums = 6, kTileRounds = 4000, kTileProducts = 16 * 16 * 64;
__attribute__((target("amx-tile,amx-int8"), noinline)) float tiles() {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } shapes;
  _tile_loadconfig(&shapes);
  _tile_zero(0), _tile_zero(1), _tile_zero(2), _tile_zero(3), _tile_zero(4), _tile_zero(5);
  _tile_zero(6), _tile_zero(7);
  for (int r = 0; r < kTileRounds; r++) {
    _tile_dpbusd(0, 6, 7);
    _tile_dpbusd(1, 6, 7);
    _tile_dpbusd(2, 6, 7);
    _tile_dpbusd(3, 6, 7);
    _tile_dpbusd(4, 6, 7);
    _tile_dpbusd(5, 6, 7);
  }
  int32_t sums[16 * 16];
  _tile_stored(0, sums, 64);  // waits for the last product
  _tile_release();
  return float(sums[0]);
}

double vector_rate(double seconds, int64_t products, float (*chains)()) {
  return best_rate(seconds, double(kRounds) * kChains * double(products), chains);
}

}  // namespace

std::string fp32_unit(const Target& t) {
  return fmt::format("{}-bit {}", t.bits, t.build == Build::v2 ? "multiply and add" : "FMA");
}

std::string byte_unit(const Target& t) {
  if (t.has_byte_tiles()) return "AMX tdpbusd";
  return fmt::format("{}-bit {}", t.bits, t.adds_byte_products() ? "vpdpbusd" : "pmaddubsw, pmaddwd and paddd");
}

double fp32_peak(const Target& t, double seconds) {
  if (!runs_here(t)) return 0;
  switch (t.build) {
    case Build::v2:
      return vector_rate(seconds, t.lanes, multiply_add_128);
    case Build::v3:
      return vector_rate(seconds, t.lanes, fma_256);
    case Build::v4:
      return vector_rate(seconds, t.lanes, fma_512);
  }
  return 0;
}

double byte_peak(const Target& t, double seconds) {
  if (!runs_here(t)) return 0;
  if (t.has_byte_tiles()) return best_rate(seconds, double(kTileRounds) * kTileSums * kTileProducts, tiles);
  const int64_t products = 4 * t.lanes;
  switch (t.build) {
    case Build::v2:
      return vector_rate(seconds, products, pairs_128);
    case Build::v3:
      return vector_rate(seconds, products, t.adds_byte_products() ? dot_256 : pairs_256);
    case Build::v4:
      return vector_rate(seconds, products, t.adds_byte_products() ? dot_512 : pairs_512);
  }
  return 0;
}

}  // namespace ingot
