// How calls from Python end early: after a time, by a token that another thread cancels, by Ctrl-C.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <cstdint>
#include <optional>

#include "base/stop.h"

namespace ingot::python {
namespace nb = nanobind;

// What Python calls a Cancel.
class PyCancel {
 public:
  void cancel() { __atomic_store_n(&word_, 1, __ATOMIC_RELAXED); }
  bool cancelled() const { return __atomic_load_n(&word_, __ATOMIC_RELAXED) != 0; }
  const int32_t* word() const { return &word_; }

 private:
  int32_t word_ = 0;
};

struct RunLimits {
  std::optional<double> timeout;
  const PyCancel* cancel = nullptr;
};

// Does work() without the GIL, within limits. On Python's main thread signals are handled about ten times a second
// meanwhile: an exception of a handler, such as KeyboardInterrupt, ends the work and is thrown.
class StoppableCall {
 public:
  explicit StoppableCall(const RunLimits&);
  template <class Work>
  void operator()(Work&& work) {
    try {
      const nb::gil_scoped_release unlocked;
      if (!needed_) return work();
      const StopScope scope(stop_);
      work();
    } catch (const Error& e) {
      if (is_stop(e) && raised_) std::rethrow_exception(raised_);
      throw;
    }
  }

 private:
  static int poll(void* self);

  Stop stop_;
  bool needed_ = false;
  std::exception_ptr raised_;
};

void add_cancel(nb::module_&);

}  // namespace ingot::python
