// Tensors across the border to Python: numpy arrays directly, everything else through DLPack.
// Contiguous memory is used where it lies; other layouts are copied. Element types are never converted.
#pragma once
#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "runtime/session.h"

namespace ingot::python {

namespace nb = nanobind;

// Loads numpy's C interface; called once when the module is imported.
void import_numpy();

// The numpy name of an element type ("float32", "bfloat16"), or Ingot's own where numpy has none.
std::string numpy_name(DType);
DType dtype_of_name(const std::string& numpy_name);  // Undefined for a name that is not one

// Reads `object` as the input `name`: fills the view, and returns what keeps its memory alive.
nb::object read_array(nb::handle object, const std::string& name, TensorView& view);

// The same for inputs that are not tensors of numbers: strings, sequences (lists), absent optionals (None). What keeps
// borrowed memory alive is added to `keep`.
Value read_value(nb::handle object, const std::string& name, const TensorInfo& type, std::vector<nb::object>& keep);
// numpy arrays (strings as objects), lists and None.
nb::object to_python(const Value&);

// An array as constant data, where it lies if it is contiguous.
ConstantPtr read_constant(nb::handle array, const std::string& name);

struct TensorExchange;  // python/exchange.h

// Memory an output is written to, without the GIL; then handed to numpy or to another library's tensor.
class OutputBuffer {
 public:
  OutputBuffer() = default;
  OutputBuffer(OutputBuffer&& other) noexcept;
  OutputBuffer& operator=(OutputBuffer&&) = delete;
  ~OutputBuffer();

  void* allocate(DType, const std::vector<int64_t>& dims);
  // These give the memory away.
  nb::object to_numpy();
  nb::object to_tensor(const TensorExchange&);

 private:
  DType dtype_ = DType::Undefined;
  std::vector<int64_t> dims_;
  void* data_ = nullptr;
};

}  // namespace ingot::python
