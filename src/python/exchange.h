// DLPack's C exchange interface: classes of tensors (torch.Tensor) offer functions, found in the attribute
// __dlpack_c_exchange_api__, that turn their objects into plain structs and back without any Python code. The structs
// are DLPack's own, of version 1.
#pragma once
#include <nanobind/ndarray.h>

#include <cstdint>

#include "python/arrays.h"

namespace ingot::python {

using DlTensor = nb::dlpack::dltensor;

struct DlVersion {
  uint32_t major = 1, minor = 0;
};

struct DlManagedTensor {
  DlVersion version;
  void* context = nullptr;
  void (*deleter)(DlManagedTensor*) = nullptr;
  uint64_t flags = 0;
  DlTensor tensor;
};

struct TensorExchange {
  struct {
    DlVersion version;
    const void* older = nullptr;
  } header;
  int (*allocate)(DlTensor*, DlManagedTensor**, void*, void (*)(void*, const char*, const char*)) = nullptr;
  int (*from_python)(void*, DlManagedTensor**) = nullptr;
  int (*to_python)(DlManagedTensor*, void**) = nullptr;
  int (*borrow)(void*, DlTensor*) = nullptr;  // may be absent
  int (*current_stream)(int32_t, int32_t, void**) = nullptr;
};

// The interface of a class, or nullptr when it has none of a version this code knows.
const TensorExchange* find_exchange(nb::handle type);
// The same; an error that names the class when it has none.
const TensorExchange& exchange_of(nb::handle type);

DType dtype_of_dlpack(nb::dlpack::dtype);  // Undefined for types Ingot does not have
nb::dlpack::dtype dlpack_of_dtype(DType);  // an error for types DLPack does not have

}  // namespace ingot::python
