#include "python/stop.h"

namespace ingot::python {
namespace {

// Where Python handles signals.
bool on_main_thread() {
  static const auto main_thread =
      nb::cast<unsigned long>(nb::module_::import_("threading").attr("main_thread")().attr("ident"));
  return PyThread_get_thread_ident() == main_thread;
}

}  // namespace

StoppableCall::StoppableCall(const RunLimits& limits) {
  if (limits.timeout) {
    if (!(*limits.timeout > 0)) invalid_input("timeout: {} is not a positive number of seconds", *limits.timeout);
    stop_.after(*limits.timeout);
  }
  if (limits.cancel) stop_.when_set(limits.cancel->word());
  const bool polls = on_main_thread();
  if (polls) stop_.when(poll, this);
  needed_ = polls || limits.timeout || limits.cancel;
}

int StoppableCall::poll(void* self) {
  const nb::gil_scoped_acquire locked;
  if (PyErr_CheckSignals() == 0) return 0;
  static_cast<StoppableCall*>(self)->raised_ = std::make_exception_ptr(nb::python_error());
  return 1;
}

void add_cancel(nb::module_& m) {
  nb::class_<PyCancel>(m, "Cancel",
                       "Ends runs: those that were given it raise CancelledError soon after cancel(), and at once if\n"
                       "they begin later. Any thread may call it; one token serves any number of runs.")
      .def(nb::init<>())
      .def("cancel", &PyCancel::cancel)
      .def_prop_ro("cancelled", &PyCancel::cancelled);
}

}  // namespace ingot::python
