// One T for each process, made when it is first asked for and never destroyed. The child of a fork has one of its own:
// the one of its parent may be locked or half changed by a thread that the child does not have.
#pragma once
#include <unistd.h>

#include <atomic>

namespace ingot {

template <class T>
class ProcessWide {
 public:
  T& get() {
    const pid_t me = getpid();
    One* now = one_.load(std::memory_order_acquire);
    if (now && now->owner == me) return now->value;
    auto* fresh = new One{me, {}};
    while (!now || now->owner != me)  // of several threads that come first, the first one's is taken
      if (one_.compare_exchange_weak(now, fresh, std::memory_order_acq_rel, std::memory_order_acquire))
        return fresh->value;
    delete fresh;
    return now->value;
  }

 private:
  struct One {
    const pid_t owner;
    T value;
  };
  std::atomic<One*> one_{nullptr};
};

}  // namespace ingot
