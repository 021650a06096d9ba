#include "runtime/thread_pool.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "base/error.h"

namespace ingot {
namespace {

constexpr int kMaxThreads = 256;
constexpr int kSpins = 4000;  // about 50 microseconds of pause instructions

void futex_wait(std::atomic<uint32_t>& word, uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
void futex_wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, kMaxThreads, nullptr, nullptr, 0);
}

// A word that threads wait on: spin first, sleep later.
struct alignas(64) Signal {
  std::atomic<uint32_t> word{0};
  std::atomic<uint32_t> sleepers{0};

  void wait_while(uint32_t value) {
    for (int i = 0; i < kSpins; i++) {
      if (word.load(std::memory_order_acquire) != value) return;
      __builtin_ia32_pause();
    }
    sleepers.fetch_add(1);
    while (word.load() == value) futex_wait(word, value);
    sleepers.fetch_sub(1);
  }
  void set(uint32_t value) {
    word.store(value);
    if (sleepers.load()) futex_wake(word);
  }
};

// A job is open while there may be work left in it. Workers that wake up in time join it; those that do not are not
// waited for, so that a busy machine costs the help, not the time until help wakes up.
class Pool {
 public:
  void run(int64_t units, int64_t piece, int threads, RangeFn fn, void* context) {
    start_workers(threads - 1);
    fn_ = fn;
    context_ = context;
    units_ = units;
    piece_ = piece;
    helpers_ = threads - 1;
    next_.store(0, std::memory_order_relaxed);
    job_.word.store(kOpen, std::memory_order_release);
    go_.set(go_.word.load(std::memory_order_relaxed) + 1);
    work(0);
    job_.word.fetch_and(~kOpen, std::memory_order_acq_rel);
    for (uint32_t inside; (inside = job_.word.load(std::memory_order_acquire)) != 0;) job_.wait_while(inside);
  }

 private:
  static void* entry(void* self) {
    auto* start = static_cast<std::pair<Pool*, int>*>(self);
    Pool* pool = start->first;
    int worker = start->second;
    delete start;
    pool->loop(worker);
    return nullptr;
  }
  void loop(int worker) {
    uint32_t seen = 0;  // workers start before the first go that counts them
    while (true) {
      go_.wait_while(seen);
      seen = go_.word.load(std::memory_order_acquire);
      if (!join()) continue;
      if (worker <= helpers_) work(worker);
      if (job_.word.fetch_sub(1) == 1 && job_.sleepers.load()) futex_wake(job_.word);
    }
  }
  bool join() {
    uint32_t v = job_.word.load(std::memory_order_acquire);
    while (v & kOpen)
      if (job_.word.compare_exchange_weak(v, v + 1, std::memory_order_acq_rel)) return true;
    return false;
  }
  void work(int worker) {
    while (true) {
      int64_t begin = next_.fetch_add(piece_, std::memory_order_relaxed);
      if (begin >= units_) return;
      fn_(context_, begin, std::min(begin + piece_, units_), worker);
    }
  }
  void start_workers(int wanted) {
    // A worker must see the next go as new: it starts at generation 0, so reset the generation while none runs.
    while (workers_ < std::min(wanted, kMaxThreads - 1)) {
      pthread_attr_t attr;
      pthread_attr_init(&attr);
      pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
      pthread_t id;
      auto* start = new std::pair<Pool*, int>(this, workers_ + 1);
      if (go_.word.load() != 0) {
        pthread_attr_destroy(&attr);
        delete start;
        return;  // the pool grows only before its first use; see pool_for
      }
      int rc = pthread_create(&id, &attr, entry, start);
      pthread_attr_destroy(&attr);
      if (rc != 0) {
        delete start;
        return;  // fewer threads than asked for: slower, not wrong
      }
      workers_++;
    }
  }

 public:
  int workers() const { return workers_; }

 private:
  static constexpr uint32_t kOpen = 1u << 31;
  Signal go_, job_;  // job_: kOpen, and the number of workers inside
  RangeFn fn_ = nullptr;
  void* context_ = nullptr;
  int64_t units_ = 0, piece_ = 1;
  int helpers_ = 0;
  int workers_ = 0;
  alignas(64) std::atomic<int64_t> next_{0};
};

std::mutex pool_mutex;
Pool* pool = nullptr;
int pool_threads = 0;

std::atomic<pid_t> pool_owner{0};

// In the child of a fork the workers do not exist, and somebody may hold the lock who does not exist either. A new
// child has one thread, so nobody is disturbed.
void forget_pool_after_fork() {
  const pid_t me = getpid();
  const pid_t owner = pool_owner.load(std::memory_order_relaxed);
  if (owner == me) return;
  if (owner != 0) {
    new (&pool_mutex) std::mutex;
    pool = nullptr;
    pool_threads = 0;
  }
  pool_owner.store(me);
}

Pool& pool_for(int threads) {
  if (!pool || pool_threads < threads) {
    pool = new Pool;  // an outgrown pool sleeps on: workers cannot be joined safely from a library being unloaded
    pool_threads = threads;
  }
  return *pool;
}

int cgroup_quota() {
  long quota = 0, period = 0;
  if (FILE* f = std::fopen("/sys/fs/cgroup/cpu.max", "r")) {
    const int fields = std::fscanf(f, "%ld %ld", &quota, &period);
    std::fclose(f);
    if (fields == 2 && quota > 0 && period > 0) return static_cast<int>(std::max(1L, (quota + period - 1) / period));
  }
  return 0;
}

int positive_env(const char* name) {
  const char* text = std::getenv(name);
  if (!text || !*text) return 0;
  char* end = nullptr;
  long v = std::strtol(text, &end, 10);
  return *end == '\0' && v > 0 && v <= kMaxThreads ? static_cast<int>(v) : 0;
}

}  // namespace

void parallel_for(int64_t units, int64_t grain, int threads, RangeFn fn, void* context) {
  const int64_t pieces = std::min<int64_t>((units + grain - 1) / std::max<int64_t>(grain, 1), threads);
  if (pieces <= 1) return fn(context, 0, units, 0);
  forget_pool_after_fork();
  std::unique_lock lock(pool_mutex, std::try_to_lock);
  if (!lock) return fn(context, 0, units, 0);
  // A few pieces per thread even out a core that somebody else is using, while each stays long enough to stream.
  const int64_t piece = std::max(grain, (units + pieces * 4 - 1) / (pieces * 4));
  pool_for(threads).run(units, piece, static_cast<int>(pieces), fn, context);
}

ThreadCount default_threads(int requested) {
  if (requested < 0 || requested > kMaxThreads)
    invalid_input("threads: {} is not between 0 and {}", requested, kMaxThreads);
  if (requested > 0) return {requested, "asked for"};
  if (int n = positive_env("INGOT_NUM_THREADS")) return {n, "INGOT_NUM_THREADS"};
  ThreadCount best{static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)), "processors online"};
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) best = {CPU_COUNT(&mask), "affinity mask"};
  if (int q = cgroup_quota(); q && q < best.threads) best = {q, "cgroup CPU quota"};
  if (int n = positive_env("OMP_NUM_THREADS"); n && n < best.threads) best = {n, "OMP_NUM_THREADS"};
  best.threads = std::clamp(best.threads, 1, kMaxThreads);
  return best;
}

}  // namespace ingot
