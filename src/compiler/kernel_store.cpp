#include "compiler/kernel_store.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <new>
#include <set>
#include <thread>
#include <unordered_map>

#include "base/error.h"
#include "compiler/kernel_library.h"

namespace ingot {
namespace {

using Clock = std::chrono::steady_clock;
// Linking takes milliseconds, so kernels are handed over in groups: those that were ready within this time.
constexpr auto kHandOver = std::chrono::milliseconds(100);
constexpr int kNice = 5;

// A kernel that some session asked for. Sessions hold it as long as they live, since their plans point to its slot.
struct Wanted {
  explicit Wanted(KernelRequest r) : request(std::move(r)) {}
  const KernelRequest request;
  KernelSlot slot;
  std::shared_ptr<const KernelFn> library;  // what the slot's function is in
  std::string object;                       // compiled, while a library is still to be made of it
  std::set<const void*> users;              // sessions that wait for it
  bool failed = false;                      // its steps stay native

  bool open() const { return !slot.function.load() && !failed; }
};
using WantedPtr = std::shared_ptr<Wanted>;

// The kernels that a plan lacked: one library in the disk cache.
struct Batch {
  std::vector<WantedPtr> kernels;
  Cache cache;
};

// Kernels that no session holds any more are kept for the next one, up to so many: each may be a library of its own,
// and a process has only so many mappings.
constexpr size_t kMostUnused = 100;

Requests requests_of(const std::vector<WantedPtr>& kernels) {
  Requests out;
  for (const WantedPtr& w : kernels) out.push_back(&w->request);
  return out;
}

// All kernels of this process, and the thread that compiles them. It is never destroyed: the thread may outlive all but
// the process.
class KernelStore {
 public:
  static KernelStore& get() {
    static KernelStore* store = new KernelStore;
    return *store;
  }

  // Slots for the requests, which are all different; what is missing is compiled, here if `wait`.
  std::vector<std::shared_ptr<KernelSlot>> want(std::vector<KernelRequest> requests, const Cache& cache,
                                                const void* user, bool wait) {
    std::vector<WantedPtr> all, missing;
    {
      std::lock_guard lock(mutex_);
      for (KernelRequest& r : requests) {
        WantedPtr& w = kernels_[r.symbol];
        if (!w) w = std::make_shared<Wanted>(std::move(r));
        all.push_back(w);
        if (w->open()) missing.push_back(w);
      }
    }
    if (!missing.empty() && !take_from_cache(missing, cache)) {
      if (wait)
        compile_now(missing, cache);
      else
        queue({missing, cache}, user);
    }
    std::vector<std::shared_ptr<KernelSlot>> out;
    for (const WantedPtr& w : all) out.emplace_back(w, &w->slot);
    return out;
  }

  // The session is gone: what only it waited for is not compiled.
  void forget(const void* user) {
    std::vector<WantedPtr> gone;  // unmapped after the mutex is free
    std::lock_guard lock(mutex_);
    for (auto& [symbol, w] : kernels_) w->users.erase(user);
    for (Batch& b : batches_) std::erase_if(b.kernels, [](const WantedPtr& w) { return w->users.empty(); });
    std::erase_if(batches_, [](const Batch& b) { return b.kernels.empty(); });
    if (current_ && current_->users.empty()) stop_current_ = true;
    auto unused = [](const auto& entry) { return entry.second.use_count() == 1; };
    if (static_cast<size_t>(std::count_if(kernels_.begin(), kernels_.end(), unused)) <= kMostUnused) return;
    std::erase_if(kernels_, [&](auto& entry) {
      if (!unused(entry)) return false;
      gone.push_back(std::move(entry.second));
      return true;
    });
  }

  void end() {
    {
      std::lock_guard lock(mutex_);
      ending_ = stop_current_ = true;
      work_.notify_one();
    }
    if (running_.exchange(false)) thread_->join();
  }

  // There is a thread if there is work: after a fork it has to be started anew.
  void keep_going() {
    if (running_.load(std::memory_order_relaxed)) return;
    std::lock_guard lock(mutex_);
    if (next_kernel()) start();
  }

 private:
  KernelStore() {
    // No kernel is compiled during a fork: the child could not use what another thread of LLVM had locked. One that is
    // being compiled is given up, and begun anew afterwards.
    pthread_atfork(
        [] {
          get().forks_++;
          get().stop_current_ = true;
          get().busy_.lock();
          get().mutex_.lock();
        },
        [] {
          get().mutex_.unlock();
          get().busy_.unlock();
          get().forks_--;
        },
        [] {
          KernelStore& s = get();
          s.running_ = false;  // threads do not survive a fork
          s.forks_ = 0;
          new (&s.work_) std::condition_variable;
          s.mutex_.unlock();
          s.busy_.unlock();
        });
  }

  void hand_over(const std::vector<WantedPtr>& kernels, const std::string& library) {
    const std::shared_ptr<const KernelFn> functions = load_kernels(library);
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < kernels.size(); i++) {
      if (!kernels[i]->open()) continue;  // another thread was faster
      kernels[i]->library = functions;
      kernels[i]->slot.function.store(functions.get()[i], std::memory_order_release);
    }
  }

  bool take_from_cache(const std::vector<WantedPtr>& kernels, const Cache& cache) {
    const auto library = cache.read(kernel_set_key(requests_of(kernels)));
    if (library) hand_over(kernels, *library);
    return library.has_value();
  }

  // Of several processes that want the same kernels, one compiles them and the others wait.
  void compile_now(const std::vector<WantedPtr>& kernels, const Cache& cache) {
    const Requests requests = requests_of(kernels);
    const std::string key = kernel_set_key(requests);
    const Cache::Lock lock = cache.lock(key);
    if (take_from_cache(kernels, cache)) return;
    const std::string library = link_kernels(requests, kernel_objects(requests, cache));
    cache.write(key, library);
    hand_over(kernels, library);
  }

  void queue(Batch batch, const void* user) {
    std::lock_guard lock(mutex_);
    for (const WantedPtr& w : batch.kernels) w->users.insert(user);
    batches_.push_back(std::move(batch));
    start();
    work_.notify_one();
  }

  void start() {
    if (running_ || ending_) return;
    try {
      thread_ = new std::thread([this] { work(); });
      running_ = true;
    } catch (const std::exception&) {  // no thread: steps stay native until a later run gets one
    }
  }

  // The one that has cost most, and the batch it is in. The mutex is held.
  WantedPtr next_kernel(const Batch** of = nullptr) const {
    WantedPtr best;
    for (const Batch& b : batches_)
      for (const WantedPtr& w : b.kernels) {
        if (!w->open() || !w->object.empty() || w->users.empty()) continue;
        if (best && best->slot.native_ns >= w->slot.native_ns) continue;
        best = w;
        if (of) *of = &b;
      }
    return best;
  }

  void work() {
    setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNice);
    pthread_setname_np(pthread_self(), "ingot-compiler");
    while (true) {
      {
        std::unique_lock lock(mutex_);
        work_.wait(lock, [&] { return ending_ || !batches_.empty(); });
        if (ending_) return;
      }
      const std::lock_guard busy(busy_);
      try {
        compile_next();
        link_ready();
        keep_libraries();
      } catch (...) {  // no memory: what is open stays native
        give_up();
      }
    }
  }

  void give_up() {
    std::lock_guard lock(mutex_);
    for (const Batch& b : batches_)
      for (const WantedPtr& w : b.kernels) w->failed |= w->open();
    batches_.clear();
    current_ = nullptr;
  }

  void compile_next() {
    WantedPtr w;
    Cache cache;
    {
      std::lock_guard lock(mutex_);
      const Batch* batch = nullptr;
      w = next_kernel(&batch);
      if (!w || ending_) return;
      cache = batch->cache;
      current_ = w;
      stop_current_ = false;
      if (forks_ > 0) stop_current_ = true;
    }
    std::string object;
    bool failed = false;
    try {
      object = kernel_object(w->request, cache, &stop_current_);
    } catch (const Stopped&) {
    } catch (...) {
      failed = true;
    }
    std::lock_guard lock(mutex_);
    w->object = std::move(object);
    w->failed = failed;
    current_ = nullptr;
  }

  // Makes code of the objects that are ready, if nothing else is to be compiled or the last time is long ago.
  void link_ready() {
    std::vector<WantedPtr> ready;
    std::vector<std::string> objects;
    {
      std::lock_guard lock(mutex_);
      for (const Batch& b : batches_)
        for (const WantedPtr& w : b.kernels)
          if (w->open() && !w->object.empty() && std::count(ready.begin(), ready.end(), w) == 0) ready.push_back(w);
      if (ending_ || ready.empty() || (next_kernel() && Clock::now() - handed_over_ < kHandOver)) return;
      for (const WantedPtr& w : ready) objects.push_back(w->object);
    }
    try {
      hand_over(ready, link_kernels(requests_of(ready), objects));
    } catch (const Error&) {
      std::lock_guard lock(mutex_);
      for (const WantedPtr& w : ready) w->failed = true;
    }
    handed_over_ = Clock::now();
  }

  // Batches that are complete become libraries in the cache.
  void keep_libraries() {
    std::vector<Batch> done;
    {
      std::lock_guard lock(mutex_);
      if (ending_) return;
      std::erase_if(batches_, [&](const Batch& b) {
        if (std::any_of(b.kernels.begin(), b.kernels.end(), [](const WantedPtr& w) { return w->open(); })) return false;
        done.push_back(b);
        return true;
      });
    }
    for (const Batch& b : done) {
      std::vector<std::string> objects;
      for (const WantedPtr& w : b.kernels) objects.push_back(w->object);
      // What came by another way has left no object here: the next process links it once more.
      const bool all = std::none_of(objects.begin(), objects.end(), [](const std::string& o) { return o.empty(); });
      if (all && b.cache.enabled()) try {
          b.cache.write(kernel_set_key(requests_of(b.kernels)), link_kernels(requests_of(b.kernels), objects));
        } catch (const Error&) {  // it is only a cache
        }
    }
    std::lock_guard lock(mutex_);
    std::set<WantedPtr> needed;
    for (const Batch& b : batches_) needed.insert(b.kernels.begin(), b.kernels.end());
    for (const Batch& b : done)
      for (const WantedPtr& w : b.kernels)
        if (!needed.contains(w)) w->object.clear();
  }

  std::mutex busy_;                                     // held while the thread uses LLVM
  std::mutex mutex_;                                    // of all that follows
  std::unordered_map<std::string, WantedPtr> kernels_;  // by symbol
  std::vector<Batch> batches_;
  std::condition_variable work_;
  std::thread* thread_ = nullptr;
  std::atomic<bool> running_{false};
  bool ending_ = false;
  WantedPtr current_;  // being compiled
  std::atomic<bool> stop_current_{false};
  std::atomic<int> forks_{0};  // that wait for busy_
  Clock::time_point handed_over_;
};

class SessionKernels : public KernelSource {
 public:
  SessionKernels(const Target& target, const Cache& cache, bool wait) : target_(target), cache_(cache), wait_(wait) {}
  ~SessionKernels() override {
    slots_.clear();
    KernelStore::get().forget(this);
  }

  std::vector<KernelSlot*> find(const std::vector<const Step*>& steps) override {
    std::vector<std::string> keys;
    for (const Step* s : steps) keys.push_back(kernel_key(*s));
    std::lock_guard lock(mutex_);
    std::vector<KernelRequest> fresh;
    std::set<std::string> asked;
    for (size_t i = 0; i < steps.size(); i++)
      if (!slots_.contains(keys[i]) && asked.insert(keys[i]).second) fresh.emplace_back(*steps[i], target_);
    if (!fresh.empty()) {
      std::vector<std::string> names;
      for (const KernelRequest& r : fresh) names.push_back(r.key);
      const auto found = KernelStore::get().want(std::move(fresh), cache_, this, wait_);
      for (size_t i = 0; i < found.size(); i++) slots_[names[i]] = found[i];
    }
    std::vector<KernelSlot*> out;
    for (const std::string& key : keys) out.push_back(slots_.at(key).get());
    return out;
  }
  void missed() override { KernelStore::get().keep_going(); }

 private:
  const Target& target_;
  const Cache cache_;
  const bool wait_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<KernelSlot>> slots_;  // by key
};

}  // namespace

void end_background_compiles() { KernelStore::get().end(); }

std::shared_ptr<KernelSource> compiled_kernels(const Target& target, const Cache& cache, bool wait) {
  return std::make_shared<SessionKernels>(target, cache, wait);
}

}  // namespace ingot
