// Whether a plan runs on the calling thread alone. Waking a thread takes 10 to 25 microseconds, and 50 more of its CPU
// time while it waits for work, so a plan that is done in less than kShort by itself is not helped by others. Runs are
// timed to find that out: a plan that is short with help is tried without, and stays alone if it is short then too.
#pragma once
#include <atomic>
#include <cstdint>
#include <limits>

namespace ingot {

class RunAlone {
 public:
  static constexpr int64_t kShort = 200'000;  // nanoseconds

  // How to run next. Timed runs are told to `ran`.
  bool alone() const { return is_short(alone_ns_) || (is_short(helped_ns_) && trials_left_.load(kRelaxed) > 0); }
  bool timed() const { return !is_short(alone_ns_); }
  void ran(bool alone, int64_t ns) {
    std::atomic<int64_t>& fastest = alone ? alone_ns_ : helped_ns_;
    const int64_t before = fastest.load(kRelaxed);
    if (ns < before) fastest.store(ns, kRelaxed);
    if (alone)
      trials_left_.fetch_sub(1, kRelaxed);
    else if (ns < before / 4 * 3)  // specialised code has come: what was found without it is old
      trials_left_.store(kTrials, kRelaxed);
  }

 private:
  static constexpr int kTrials = 4;
  static constexpr auto kRelaxed = std::memory_order_relaxed;
  static bool is_short(const std::atomic<int64_t>& ns) { return ns.load(kRelaxed) < kShort; }

  // Fastest run of each kind. Runs of other threads at the same time may overwrite each other: they only cost a trial.
  std::atomic<int64_t> alone_ns_{std::numeric_limits<int64_t>::max()}, helped_ns_{alone_ns_.load()};
  std::atomic<int> trials_left_{kTrials};
};

}  // namespace ingot
