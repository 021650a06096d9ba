#include "python/arrays.h"

#include <nanobind/ndarray.h>

#include <cstdlib>
#include <new>

#include "base/error.h"

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>

namespace ingot::python {
namespace {

struct Row {
  DType dtype;
  int number;
  const char* name;
};
constexpr Row rows[] = {
    {DType::F32, NPY_FLOAT32, "float32"},     {DType::F64, NPY_FLOAT64, "float64"},
    {DType::F16, NPY_FLOAT16, "float16"},     {DType::I8, NPY_INT8, "int8"},
    {DType::I16, NPY_INT16, "int16"},         {DType::I32, NPY_INT32, "int32"},
    {DType::I64, NPY_INT64, "int64"},         {DType::U8, NPY_UINT8, "uint8"},
    {DType::U16, NPY_UINT16, "uint16"},       {DType::U32, NPY_UINT32, "uint32"},
    {DType::U64, NPY_UINT64, "uint64"},       {DType::Bool, NPY_BOOL, "bool"},
    {DType::C64, NPY_COMPLEX64, "complex64"}, {DType::C128, NPY_COMPLEX128, "complex128"},
};

// numpy's number for ml_dtypes.bfloat16, looked up when it is first needed; -1 when the package is not installed.
int bfloat16_number(bool import) {
  static int number = -1;
  if (number >= 0) return number;
  // Reading an array of that type means that the package is loaded already; only writing has to import it.
  nb::object module = import ? nb::none() : nb::object(nb::borrow(PyImport_GetModule(nb::str("ml_dtypes").ptr())));
  if (import) {
    try {
      module = nb::module_::import_("ml_dtypes");
    } catch (nb::python_error&) {
      return -1;
    }
  }
  if (!module.is_valid() || module.is_none()) {
    PyErr_Clear();
    return -1;
  }
  PyArray_Descr* descr = nullptr;
  if (PyArray_DescrConverter(nb::object(module.attr("bfloat16")).ptr(), &descr)) {
    number = descr->type_num;
    Py_DECREF(descr);
  }
  return number;
}

DType dtype_of_number(int number) {
  // `long long` and `long` are two numpy types of one size.
  if (number == NPY_LONGLONG) return DType::I64;
  if (number == NPY_ULONGLONG) return DType::U64;
  for (const Row& r : rows)
    if (r.number == number) return r.dtype;
  if (number == bfloat16_number(false)) return DType::BF16;
  return DType::Undefined;
}

DType dtype_of_dlpack(nb::dlpack::dtype t) {
  using nb::dlpack::dtype_code;
  if (t.lanes != 1) return DType::Undefined;
  switch (static_cast<dtype_code>(t.code)) {
    case dtype_code::Int:
      return t.bits == 8    ? DType::I8
             : t.bits == 16 ? DType::I16
             : t.bits == 32 ? DType::I32
             : t.bits == 64 ? DType::I64
                            : DType::Undefined;
    case dtype_code::UInt:
      return t.bits == 8    ? DType::U8
             : t.bits == 16 ? DType::U16
             : t.bits == 32 ? DType::U32
             : t.bits == 64 ? DType::U64
                            : DType::Undefined;
    case dtype_code::Float:
      return t.bits == 16 ? DType::F16 : t.bits == 32 ? DType::F32 : t.bits == 64 ? DType::F64 : DType::Undefined;
    case dtype_code::Bfloat:
      return t.bits == 16 ? DType::BF16 : DType::Undefined;
    case dtype_code::Complex:
      return t.bits == 64 ? DType::C64 : t.bits == 128 ? DType::C128 : DType::Undefined;
    case dtype_code::Bool:
      return t.bits == 8 ? DType::Bool : DType::Undefined;
    default:
      return DType::Undefined;
  }
}

[[noreturn]] void refuse_dtype(const std::string& name, const std::string& found) {
  invalid_input("input '{}': arrays of {} are not supported", name, found);
}

nb::object read_numpy(PyArrayObject* array, const std::string& name, TensorView& view) {
  view.dtype = dtype_of_number(PyArray_TYPE(array));
  if (view.dtype == DType::Undefined)
    refuse_dtype(name, nb::str(nb::handle(reinterpret_cast<PyObject*>(PyArray_DESCR(array)))).c_str());
  nb::object keep = nb::borrow(reinterpret_cast<PyObject*>(array));
  if (!PyArray_IS_C_CONTIGUOUS(array) || !PyArray_ISALIGNED(array) || !PyArray_ISNOTSWAPPED(array)) {
    PyObject* copy = PyArray_FROM_OF(keep.ptr(), NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | NPY_ARRAY_NOTSWAPPED);
    if (!copy) throw nb::python_error();
    keep = nb::steal(copy);
    array = reinterpret_cast<PyArrayObject*>(copy);
  }
  view.dims.assign(PyArray_DIMS(array), PyArray_DIMS(array) + PyArray_NDIM(array));
  view.data = PyArray_DATA(array);
  return keep;
}

using DlpackArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

nb::object read_dlpack(nb::handle object, const std::string& name, TensorView& view) {
  DlpackArray array;
  if (!nb::try_cast(object, array)) {
    PyErr_Clear();
    throw Error(ErrorKind::InvalidInput,
                fmt::format("input '{}': cannot read a {} through DLPack", name, nb::type_name(object.type()).c_str()),
                "tensors have to be on the CPU and detached from autograd: tensor.detach().cpu()");
  }
  view.dtype = dtype_of_dlpack(array.dtype());
  if (view.dtype == DType::Undefined)
    refuse_dtype(name, fmt::format("DLPack type {}/{}", static_cast<int>(array.dtype().code), array.dtype().bits));
  view.dims.resize(array.ndim());
  for (size_t i = 0; i < array.ndim(); i++) view.dims[i] = static_cast<int64_t>(array.shape(i));
  view.data = const_cast<void*>(array.data());
  // A capsule that holds the DLPack tensor until the call is over.
  auto* held = new DlpackArray(std::move(array));
  return nb::capsule(held, [](void* p) noexcept { delete static_cast<DlpackArray*>(p); });
}

}  // namespace

void import_numpy() {
  if (PyArray_ImportNumPyAPI() < 0) throw nb::python_error();
}

std::string numpy_name(DType dtype) {
  if (dtype == DType::BF16) return "bfloat16";
  for (const Row& r : rows)
    if (r.dtype == dtype) return r.name;
  return std::string(ingot::name(dtype));
}

nb::object read_array(nb::handle object, const std::string& name, TensorView& view) {
  PyObject* p = object.ptr();
  if (PyArray_Check(p)) return read_numpy(reinterpret_cast<PyArrayObject*>(p), name, view);
  if (PyArray_CheckScalar(p)) {  // np.float32(1): an array of rank 0
    nb::object array = nb::steal(PyArray_FromScalar(p, nullptr));
    if (!array.is_valid()) throw nb::python_error();
    return read_numpy(reinterpret_cast<PyArrayObject*>(array.ptr()), name, view);
  }
  if (PyObject_HasAttrString(p, "__dlpack__")) return read_dlpack(object, name, view);
  throw Error(ErrorKind::InvalidInput,
              fmt::format("input '{}' is a {}, not an array", name, nb::type_name(object.type()).c_str()),
              "give a numpy array, a torch tensor, or anything else with __dlpack__");
}

OutputBuffer::OutputBuffer(OutputBuffer&& other) noexcept
    : dtype_(other.dtype_), dims_(std::move(other.dims_)), data_(std::exchange(other.data_, nullptr)) {}

OutputBuffer::~OutputBuffer() { std::free(data_); }

void* OutputBuffer::allocate(DType dtype, const std::vector<int64_t>& dims) {
  std::free(data_);
  data_ = nullptr;
  dtype_ = dtype;
  dims_ = dims;
  int64_t elements = 1;
  for (int64_t d : dims) elements *= d;
  // Whole cache lines, and never nothing: an empty output has an address too.
  const size_t bytes = (static_cast<size_t>(byte_size(dtype, elements)) + 64) / 64 * 64;
  data_ = std::aligned_alloc(64, bytes);
  if (!data_) throw std::bad_alloc();
  return data_;
}

nb::object OutputBuffer::to_numpy() {
  int number = -1;
  for (const Row& r : rows)
    if (r.dtype == dtype_) number = r.number;
  if (dtype_ == DType::BF16) {
    number = bfloat16_number(true);
    if (number < 0)
      throw Error(ErrorKind::Unsupported, "numpy has no bfloat16 of its own, and an output has this type",
                  "install the package ml_dtypes");
  }
  if (number < 0) unsupported("numpy cannot hold an output of type {}", ingot::name(dtype_));
  PyArray_Descr* descr = PyArray_DescrFromType(number);
  PyObject* array = PyArray_NewFromDescr(&PyArray_Type, descr, static_cast<int>(dims_.size()), dims_.data(), nullptr,
                                         data_, NPY_ARRAY_CARRAY, nullptr);
  if (!array) throw nb::python_error();
  nb::object result = nb::steal(array);
  nb::capsule owner(data_, [](void* p) noexcept { std::free(p); });
  data_ = nullptr;
  if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array), owner.release().ptr()) < 0)
    throw nb::python_error();
  return result;
}

}  // namespace ingot::python
