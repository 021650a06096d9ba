#include "python/cache.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "base/target.h"
#include "codegen/codegen.h"
#include "compiler/cache.h"

namespace ingot::python {
namespace nb = nanobind;
namespace {

// `with cache.lock(key):`
struct HeldLock {
  const Cache* cache;
  std::string key;
  std::optional<Cache::Lock> lock;

  void enter() {
    nb::gil_scoped_release unlocked;
    lock.emplace(cache->lock(key));
  }
};

}  // namespace

void add_cache(nb::module_& m) {
  using nb::literals::operator""_a;
  nb::class_<HeldLock>(m, "CacheLock")
      .def("__enter__", &HeldLock::enter)
      .def(
          "__exit__", [](HeldLock& self, const nb::args&) { self.lock.reset(); },
          nb::sig("def __exit__(self, *args: object) -> None"));
  nb::class_<Cache>(m, "Cache", "The disk cache of compiled code.")
      .def(nb::init<const std::string&>(), "folder"_a = "")
      .def_prop_ro("enabled", &Cache::enabled)
      .def_prop_ro("folder", &Cache::folder)
      .def("find", &Cache::find, "key"_a, nb::call_guard<nb::gil_scoped_release>(),
           "The path of an entry that is there and whole; a damaged one is removed.")
      .def("add_file", &Cache::add_file, "key"_a, "file"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Makes a copy of the file an entry and returns its path.")
      .def(
          "lock", [](const Cache& cache, std::string key) { return HeldLock{&cache, std::move(key), std::nullopt}; },
          "key"_a, nb::keep_alive<0, 1>(), "A context in which no other process makes this entry.");
  m.def("kernels_compiled", &kernels_compiled, "Kernels this process compiled because no cache held them.");
  m.def(
      "code_version", [] { return codegen_version() + "-" + std::string(cpu_target().name); },
      "Changes with the kernels, the code generator and the level of this CPU.");
}

}  // namespace ingot::python
