// Quantization and conversion of ONNX files, for Python.
#pragma once
#include <nanobind/nanobind.h>

namespace ingot::python {

// Adds quantize_file and convert_file to the module.
void add_quantizer(nanobind::module_&);

}  // namespace ingot::python
