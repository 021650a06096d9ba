// When work ends before it is done: at a time, at the word of another thread, or when the host says so. The thread
// that works has a Stop in force while a StopScope of it lives; whoever works for long asks check_stop() now and then.
#pragma once
#include <atomic>
#include <cstdint>

#include "base/error.h"

namespace ingot {

class Stop {
 public:
  // Called by the working thread about ten times a second; anything but 0 ends the work.
  using Poll = int (*)(void* data);

  // "the run", "timeout": what is late, and the option that says so.
  explicit Stop(const char* what = "the run", const char* option = "timeout") : what_(what), option_(option) {}
  // 0: any time. Negative ones and NaN are an error.
  void after(double seconds);
  // Ends when the word is not 0. It may be null, and is written atomically.
  void when_set(const int32_t* word) { cancel_ = word; }
  void when(Poll poll, void* data);

  bool has_deadline() const { return deadline_ != 0; }
  double seconds_left() const;  // 0 or less: late
  const int32_t* cancel() const { return cancel_; }
  Poll poll() const { return poll_; }
  void* poll_data() const { return poll_data_; }

  // Is there a time or a word? Then long steps are cut into pieces. Where the host is only polled they are not: that
  // would cost runs that nobody stops.
  bool cuts() const { return deadline_ != 0 || cancel_ || (outer_ && outer_->cuts()); }
  // For any thread.
  bool is_over() const { return is_set() || is_late() || (outer_ && outer_->is_over()); }
  // For any thread: as check(), without asking the host.
  void look() const {
    if (outer_) outer_->look();
    if (is_set()) throw_cancelled();
    if (is_late()) throw_late();
  }
  // For the working thread: an Error of kind Cancelled or Deadline when it is over.
  void check() {
    for (Stop* s = this; s; s = s->outer_)
      if (s->poll_ && ticks() >= s->poll_at_) s->ask_host();
    look();
  }

 private:
  friend class StopScope;
  static uint64_t ticks() { return __builtin_ia32_rdtsc(); }
  static int64_t now();
  bool is_set() const { return said_so_ || (cancel_ && __atomic_load_n(cancel_, __ATOMIC_RELAXED) != 0); }
  bool is_late() const { return deadline_ != 0 && now() >= deadline_; }
  void ask_host();
  [[noreturn]] void throw_cancelled() const;
  [[noreturn]] void throw_late() const;

  const char *what_, *option_;
  int64_t deadline_ = 0;  // nanoseconds of the steady clock
  double seconds_ = 0;
  const int32_t* cancel_ = nullptr;
  Poll poll_ = nullptr;
  void* poll_data_ = nullptr;
  uint64_t poll_at_ = 0;
  std::atomic<bool> said_so_{false};  // the host
  Stop* outer_ = nullptr;
};

// What is in force for the calling thread, or null.
extern thread_local constinit Stop* stop_in_force;
inline void check_stop() {
  if (stop_in_force) stop_in_force->check();
}

// Puts a stop in force for the calling thread, inside the one that is.
class StopScope {
 public:
  explicit StopScope(Stop& stop) : before_(stop_in_force) {
    stop.outer_ = before_;
    stop_in_force = &stop;
  }
  ~StopScope() { stop_in_force = before_; }
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;

 private:
  Stop* before_;
};

// Is this what check() throws? Whoever goes on after errors does not go on after these.
inline bool is_stop(const Error& e) { return e.kind() == ErrorKind::Cancelled || e.kind() == ErrorKind::Deadline; }

}  // namespace ingot
