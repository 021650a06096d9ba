// Random numbers, counter-based (Philox 4x32, ten rounds): element i of a result is a function of (key, i) alone, so it
// does not matter how the elements are split over threads. The key is the seed, or is drawn by ingot_random_key, which
// gives another one each time. Operands there: key. One unit.
//
// ingot_random: operands: key (null: the seed), p, y. A unit is kRandomChunk elements.
//   uniform:    y = a + u (b - a)
//   normal:     y = a + b sqrt(-2 ln u) cos(2 pi v)
//   bernoulli:  y = u < p[i]
// ingot_multinomial: operands: key, logits [units, classes], y [units, samples]: class c with probability ~ exp(logit).
//   A unit is a row. Scratch: `classes` doubles.
// ingot_dropout: operands: key, x, ratio, training (bool; both one element), y, mask; ratio null: 0.5; training
//   null: no; mask may be null.
//   y = x mask / (1 - ratio),  mask = u >= ratio;  y = x where it is not training. A unit is kRandomChunk elements.
//   With a seed (key null) the u are those of the Mersenne twister, whose order ONNX's own cases fix: one unit is all
//   elements.
#pragma once
#include <cstdint>

#include "kernels/abi.h"

namespace ingot {

inline constexpr int64_t kRandomChunk = 1024;

enum RandomKind : int64_t { kRandomUniform, kRandomNormal, kRandomBernoulli };

struct RandomParams {
  int64_t kind, in_type, out_type;  // DType of p and y
  int64_t seed, count;
  double a, b;
};

struct MultinomialParams {
  int64_t in_type, out_type;
  int64_t seed, classes, samples;
};

struct DropoutParams {
  int64_t type, ratio_type;
  int64_t seed, count;
};

INGOT_KERNEL(ingot_dropout);
INGOT_KERNEL(ingot_multinomial);
INGOT_KERNEL(ingot_random);
INGOT_KERNEL(ingot_random_key);

}  // namespace ingot
