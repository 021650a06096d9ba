// What the torch backend needs to know about weights: whether they are still what a session was made with, and a name
// for their contents. Tensors are torch's; torch itself is not linked.
#pragma once
#include <nanobind/nanobind.h>

namespace ingot::python {

// Binds WeightWatch and content_hashes.
void add_weights(nanobind::module_&);

}  // namespace ingot::python
