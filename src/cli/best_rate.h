// The best rate at which something can be done, measured over and over for a while.
#pragma once
#include <algorithm>
#include <chrono>

namespace ingot {

// work() does `amount` of it and returns a number that keeps the compiler from leaving it out; in 1e9 per second.
template <class Work>
double best_rate(double seconds, double amount, const Work& work) {
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  double best = 0;
  const double end = now() + seconds;
  volatile float sink = 0;
  do {
    const double start = now();
    sink = work();
    best = std::max(best, amount / (now() - start));
  } while (now() < end);
  (void)sink;
  return best * 1e-9;
}

}  // namespace ingot
