// One pool of worker threads per process, whatever the number of sessions. Fork-join: the caller takes part, workers
// spin for microseconds after their last work and then block, so idling costs no CPU. Survives fork(): the child
// starts its own workers when it first needs them.
#pragma once
#include <cstdint>
#include <string>

namespace ingot {

struct PieceOfWork {
  int64_t begin, end;  // units
  int64_t done;        // where this worker's last piece ended, 0 if this is its first
  int worker;          // in [0, threads), unique among those running at the same time
};
using RangeFn = void (*)(void* context, const PieceOfWork&);

// Calls fn over [0, units), cut into pieces of at least `grain` units, on at most `threads` threads. Each has a part of
// its own, the same one whenever it is called with as many units, so that it finds in its caches what it wrote; who is
// done takes from the others. Returns when all is done. When the pool is busy with another caller's range, the calling
// thread does all the work itself.
void parallel_for(int64_t units, int64_t grain, int threads, RangeFn fn, void* context);

struct ThreadCount {
  int threads;
  std::string reason;
};
// The requested number, or INGOT_NUM_THREADS, or the least of affinity mask, cgroup CPU quota and OMP_NUM_THREADS.
ThreadCount default_threads(int requested);

}  // namespace ingot
