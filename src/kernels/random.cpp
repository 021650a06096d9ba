#include "kernels/random.h"

#include "kernels/any_number.h"

namespace ingot::kernel {
namespace {

struct Words {
  uint32_t w[4];
};

Words philox(uint64_t key, uint64_t counter) {
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  Words x{{uint32_t(counter), uint32_t(counter >> 32), 0, 0}};
  for (int round = 0; round < 10; round++) {
    const uint64_t a = uint64_t(0xD2511F53) * x.w[0], b = uint64_t(0xCD9E8D57) * x.w[2];
    x = {{uint32_t(b >> 32) ^ x.w[1] ^ k0, uint32_t(b), uint32_t(a >> 32) ^ x.w[3] ^ k1, uint32_t(a)}};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return x;
}

// In [0, 1), 53 bits.
double uniform(uint32_t high, uint32_t low) { return double((uint64_t(high) << 32 | low) >> 11) * 0x1p-53; }
double uniform(uint64_t key, int64_t i) {
  const Words x = philox(key, uint64_t(i));
  return uniform(x.w[0], x.w[1]);
}
double normal(uint64_t key, int64_t i) {
  const Words x = philox(key, uint64_t(i));
  const double u = 1 - uniform(x.w[0], x.w[1]), v = uniform(x.w[2], x.w[3]);
  return __builtin_sqrt(-2 * __builtin_log(u)) * __builtin_cos(2 * 3.14159265358979323846 * v);
}

uint64_t key_of(const void* drawn, int64_t seed) {
  return drawn ? *static_cast<const uint64_t*>(drawn) : uint64_t(seed);
}

uint64_t drawn_keys = 0;  // of this process

}  // namespace

extern "C" KernelStatus ingot_random_key(const KernelCall* call) {
  const uint64_t number = __atomic_add_fetch(&drawn_keys, 1, __ATOMIC_RELAXED);
  const Words mixed = philox(__builtin_ia32_rdtsc(), number);
  *static_cast<uint64_t*>(call->operand[0]) = uint64_t(mixed.w[0]) << 32 | mixed.w[1];
  return kOk;
}

extern "C" KernelStatus ingot_random(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const RandomParams*>(call->param);
  const uint64_t key = key_of(call->operand[0], p.seed);
  const int64_t end = call->end * kRandomChunk < p.count ? call->end * kRandomChunk : p.count;
  for (int64_t i = call->begin * kRandomChunk; i < end; i++) {
    Number y;
    if (p.kind == kRandomUniform)
      y = real(p.a + uniform(key, i) * (p.b - p.a));
    else if (p.kind == kRandomNormal)
      y = real(p.a + p.b * normal(key, i));
    else
      y = whole(uniform(key, i) < read_number(static_cast<DType>(p.in_type), call->operand[1], i).f);
    write_number(static_cast<DType>(p.out_type), true, 0, call->operand[2], i, y);
  }
  return kOk;
}

extern "C" KernelStatus ingot_multinomial(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const MultinomialParams*>(call->param);
  const uint64_t key = key_of(call->operand[0], p.seed);
  auto* sums = static_cast<double*>(call->scratch);
  for (int64_t row = call->begin; row < call->end; row++) {
    auto logit = [&](int64_t c) {
      return read_number(static_cast<DType>(p.in_type), call->operand[1], row * p.classes + c).f;
    };
    double largest = logit(0), total = 0;
    for (int64_t c = 1; c < p.classes; c++) largest = logit(c) > largest ? logit(c) : largest;
    for (int64_t c = 0; c < p.classes; c++) sums[c] = total += __builtin_exp(logit(c) - largest);
    for (int64_t s = 0; s < p.samples; s++) {
      const int64_t i = row * p.samples + s;
      const double at = uniform(key, i) * total;
      int64_t low = 0, high = p.classes - 1;  // the first class whose sum is above `at`
      while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (sums[middle] > at)
          high = middle;
        else
          low = middle + 1;
      }
      write_number(static_cast<DType>(p.out_type), true, 0, call->operand[2], i, whole(low));
    }
  }
  return kOk;
}

namespace {

// MT19937, and doubles of 53 bits made of two of its numbers.
class MersenneTwister {
 public:
  explicit MersenneTwister(uint32_t seed) {
    for (int i = 0; i < kSize; i++) {
      state_[i] = seed;
      seed = 1812433253u * (seed ^ seed >> 30) + static_cast<uint32_t>(i + 1);
    }
  }
  double uniform() {
    const uint32_t a = next() >> 5, b = next() >> 6;
    return (a * 67108864.0 + b) / 9007199254740992.0;
  }

 private:
  static constexpr int kSize = 624, kShift = 397;
  uint32_t next() {
    if (at_ == kSize) {
      for (int i = 0; i < kSize; i++) {
        const uint32_t y = (state_[i] & 0x80000000u) | (state_[(i + 1) % kSize] & 0x7fffffffu);
        state_[i] = state_[(i + kShift) % kSize] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0u);
      }
      at_ = 0;
    }
    uint32_t y = state_[at_++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
  }
  uint32_t state_[kSize];
  int at_ = kSize;
};

}  // namespace

extern "C" KernelStatus ingot_dropout(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const DropoutParams*>(call->param);
  const uint64_t key = key_of(call->operand[0], p.seed);
  const auto* training = static_cast<const uint8_t*>(call->operand[3]);
  double ratio = call->operand[2] ? read_number(static_cast<DType>(p.ratio_type), call->operand[2], 0).f : 0.5;
  if (!(ratio >= 0 && ratio <= 1)) return kBadValue;
  if (!training || !*training) ratio = 0;
  auto* mask = static_cast<uint8_t*>(call->operand[5]);
  const bool seeded = call->operand[0] == nullptr;
  const int64_t end = !seeded && call->end * kRandomChunk < p.count ? call->end * kRandomChunk : p.count;
  MersenneTwister numbers(static_cast<uint32_t>(p.seed));
  for (int64_t i = call->begin * kRandomChunk; i < end; i++) {
    const bool keep = ratio == 0 || (seeded ? numbers.uniform() : uniform(key, i)) >= ratio;
    const double x = read_number(static_cast<DType>(p.type), call->operand[1], i).f;
    write_number(static_cast<DType>(p.type), true, 0, call->operand[4], i, real(keep ? x / (1 - ratio) : 0));
    if (mask) mask[i] = keep;
  }
  return kOk;
}

}  // namespace ingot::kernel
