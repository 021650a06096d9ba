// The disk cache (compiler/cache.h) for Python.
#pragma once
#include <nanobind/nanobind.h>

namespace ingot::python {

// Binds Cache, code_version and kernels_compiled.
void add_cache(nanobind::module_&);

}  // namespace ingot::python
