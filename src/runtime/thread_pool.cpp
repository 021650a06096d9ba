#include "runtime/thread_pool.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/process_wide.h"

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
  void run(int64_t units, int64_t grain, int threads, RangeFn fn, void* context) {
    start_workers(threads - 1);
    fn_ = fn;
    context_ = context;
    units_ = units;
    threads_ = threads;
    scale_ = units / kMaxBlocks + 1;
    const int64_t blocks = (units + scale_ - 1) / scale_;
    // Small enough that nobody waits long for the last piece, large enough to stream.
    least_ = std::max<int64_t>((grain + scale_ - 1) / scale_, blocks / (threads * 32));
    for (int i = 0; i < threads; i++)
      parts_[i].blocks.store(
          {static_cast<uint32_t>(blocks * i / threads), static_cast<uint32_t>(blocks * (i + 1) / threads)},
          std::memory_order_relaxed);
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
      if (worker < threads_) work(worker);
      if (job_.word.fetch_sub(1) == 1 && job_.sleepers.load()) futex_wake(job_.word);
    }
  }
  bool join() {
    uint32_t v = job_.word.load(std::memory_order_acquire);
    while (v & kOpen)
      if (job_.word.compare_exchange_weak(v, v + 1, std::memory_order_acq_rel)) return true;
    return false;
  }
  // What is left of a thread's part. Blocks are units, unless there are billions of them.
  struct Blocks {
    uint32_t begin, end;
  };
  struct alignas(64) Part {
    std::atomic<Blocks> blocks;
  };
  // Half of what is left of a part: its beginning for the owner, its end for others. Empty when nothing is left.
  Blocks take(Part& part, bool own) {
    Blocks left = part.blocks.load(std::memory_order_relaxed);
    while (left.begin < left.end) {
      const uint32_t all = left.end - left.begin;
      const uint32_t some = static_cast<uint32_t>(std::min<int64_t>(all, std::max<int64_t>(least_, (all + 1) / 2)));
      const Blocks rest = own ? Blocks{left.begin + some, left.end} : Blocks{left.begin, left.end - some};
      if (part.blocks.compare_exchange_weak(left, rest, std::memory_order_relaxed))
        return own ? Blocks{left.begin, rest.begin} : Blocks{rest.end, left.end};
    }
    return {0, 0};
  }
  void work(int worker) {
    PieceOfWork piece{0, 0, 0, worker};
    for (int i = 0; i < threads_; i++) {
      Part& part = parts_[(worker + i) % threads_];
      for (Blocks b; (b = take(part, i == 0)).begin < b.end;) {
        piece.done = piece.end;
        piece.begin = b.begin * scale_;
        piece.end = std::min(b.end * scale_, units_);
        fn_(context_, piece);
      }
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
        return;  // the pool grows only before its first use; see SharedPool
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

  static constexpr uint32_t kOpen = 1u << 31;
  Signal go_, job_;  // job_: kOpen, and the number of workers inside
  RangeFn fn_ = nullptr;
  void* context_ = nullptr;
  static constexpr int64_t kMaxBlocks = int64_t{1} << 31;
  int64_t units_ = 0, scale_ = 1, least_ = 1;
  int threads_ = 1, workers_ = 0;
  std::array<Part, kMaxThreads> parts_;
};

// Of all sessions. In the child of a fork its workers do not exist, which is why the child has another.
struct SharedPool {
  std::mutex mutex;
  Pool* pool = nullptr;
  int threads = 0;

  Pool& with(int wanted) {
    if (!pool || threads < wanted) {
      pool = new Pool;  // an outgrown pool sleeps on: workers cannot be joined safely from a library being unloaded
      threads = wanted;
    }
    return *pool;
  }
};
constinit ProcessWide<SharedPool> shared_pool;

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
  if (pieces <= 1) return fn(context, {0, units, 0, 0});
  SharedPool& shared = shared_pool.get();
  std::unique_lock lock(shared.mutex, std::try_to_lock);
  if (!lock) return fn(context, {0, units, 0, 0});
  shared.with(threads).run(units, grain, static_cast<int>(pieces), fn, context);
}

ThreadCount default_threads(int requested) {
  if (requested < 0 || requested > kMaxThreads)
    invalid_input("threads: {} is not between 0 and {}", requested, kMaxThreads);
  if (requested > 0) return {requested, "asked for"};
  if (const char* text = std::getenv("INGOT_NUM_THREADS"); text && *text && std::string_view(text) != "0") {
    if (int n = positive_env("INGOT_NUM_THREADS")) return {n, "INGOT_NUM_THREADS"};
    invalid_input("INGOT_NUM_THREADS={}: not a number between 0 and {}", text, kMaxThreads);
  }
  ThreadCount best{static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)), "processors online"};
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) best = {CPU_COUNT(&mask), "affinity mask"};
  if (int q = cgroup_quota(); q && q < best.threads) best = {q, "cgroup CPU quota"};
  if (int n = positive_env("OMP_NUM_THREADS"); n && n < best.threads) best = {n, "OMP_NUM_THREADS"};
  best.threads = std::clamp(best.threads, 1, kMaxThreads);
  return best;
}

}  // namespace ingot
