#include "python/arrays.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "python/exchange.h"
#include "runtime/output_memory.h"

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>

namespace ingot::python {

using namespace nb::literals;
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

// Types that numpy has only through the package ml_dtypes, which gives them numbers when it is imported. Those of
// less than a byte take a byte each there; Ingot packs them, the first in the lowest bits, as ONNX does.
struct ExtensionRow {
  DType dtype;
  const char* name;
};
constexpr ExtensionRow extension_rows[] = {
    {DType::BF16, "bfloat16"},
    {DType::F8E4M3FN, "float8_e4m3fn"},
    {DType::F8E4M3FNUZ, "float8_e4m3fnuz"},
    {DType::F8E5M2, "float8_e5m2"},
    {DType::F8E5M2FNUZ, "float8_e5m2fnuz"},
    {DType::F8E8M0, "float8_e8m0fnu"},
    {DType::F4E2M1, "float4_e2m1fn"},
    {DType::I4, "int4"},
    {DType::U4, "uint4"},
    {DType::I2, "int2"},
    {DType::U2, "uint2"},
};
constexpr size_t kExtensions = std::size(extension_rows);

// numpy's numbers for the rows above, -1 where the package does not have the type or is not installed.
const std::array<int, kExtensions>& extension_numbers() {
  static const std::array<int, kExtensions> numbers = [] {
    std::array<int, kExtensions> out;
    out.fill(-1);
    PyObject* module = PyImport_ImportModule("ml_dtypes");
    for (size_t i = 0; module && i < kExtensions; i++) {
      nb::object type = nb::steal(PyObject_GetAttrString(module, extension_rows[i].name));
      PyArray_Descr* descr = nullptr;
      if (type.is_valid() && PyArray_DescrConverter(type.ptr(), &descr)) {
        out[i] = descr->type_num;
        Py_DECREF(descr);
      }
      PyErr_Clear();
    }
    PyErr_Clear();
    Py_XDECREF(module);
    return out;
  }();
  return numbers;
}

std::vector<uint8_t> join_bits(const uint8_t* from, int64_t elements, int width) {
  const int per_byte = 8 / width, mask = (1 << width) - 1;
  std::vector<uint8_t> out(static_cast<size_t>((elements + per_byte - 1) / per_byte) + 1);
  for (int64_t i = 0; i < elements; i++)
    out[static_cast<size_t>(i / per_byte)] |= static_cast<uint8_t>((from[i] & mask) << (i % per_byte * width));
  return out;
}

// In place, from the back: there is room for a byte per element.
void unpack(uint8_t* data, int64_t elements, int width, bool sign) {
  const int per_byte = 8 / width, mask = (1 << width) - 1;
  for (int64_t i = elements; i-- > 0;) {
    int value = data[i / per_byte] >> (i % per_byte * width) & mask;
    if (sign && (value >> (width - 1))) value |= ~mask;
    data[i] = static_cast<uint8_t>(value);
  }
}

DType dtype_of_number(int number) {
  // `long long` and `long` are two numpy types of one size.
  if (number == NPY_LONGLONG) return DType::I64;
  if (number == NPY_ULONGLONG) return DType::U64;
  for (const Row& r : rows)
    if (r.number == number) return r.dtype;
  if (number >= NPY_USERDEF)
    for (size_t i = 0; i < kExtensions; i++)
      if (extension_numbers()[i] == number) return extension_rows[i].dtype;
  return DType::Undefined;
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
  if (bits(view.dtype) < 8) {
    auto* joined = new std::vector<uint8_t>(
        join_bits(static_cast<const uint8_t*>(view.data), PyArray_SIZE(array), bits(view.dtype)));
    keep = nb::capsule(joined, [](void* p) noexcept { delete static_cast<std::vector<uint8_t>*>(p); });
    view.data = joined->data();
  }
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

// PyTorch keeps a change of sign or a conjugation as a bit of the tensor that memory does not show: done now.
nb::object resolved(nb::object tensor) {
  static PyObject* const kBits[][2] = {
      {PyUnicode_InternFromString("is_neg"), PyUnicode_InternFromString("resolve_neg")},
      {PyUnicode_InternFromString("is_conj"), PyUnicode_InternFromString("resolve_conj")}};
  static PyTypeObject* last_type = nullptr;  // kept alive: every call of a model asks
  static bool has_bits = false;
  if (Py_TYPE(tensor.ptr()) != last_type) {
    PyTypeObject* type = Py_TYPE(tensor.ptr());
    has_bits = PyObject_HasAttr(reinterpret_cast<PyObject*>(type), kBits[0][1]) != 0;
    Py_XSETREF(last_type, reinterpret_cast<PyTypeObject*>(Py_NewRef(reinterpret_cast<PyObject*>(type))));
  }
  for (auto [is_set, resolve] : kBits) {
    if (!has_bits) break;
    const nb::object set = nb::steal(PyObject_CallMethodNoArgs(tensor.ptr(), is_set));
    if (!set.is_valid()) throw nb::python_error();
    if (set.ptr() != Py_True) continue;
    tensor = nb::steal(PyObject_CallMethodNoArgs(tensor.ptr(), resolve));
    if (!tensor.is_valid()) throw nb::python_error();
  }
  return tensor;
}

// Row-major, as far as dims of more than one element tell.
bool is_contiguous(const DlTensor& t) {
  int64_t expected = 1;
  for (int32_t d = t.ndim; t.strides && d-- > 0;) {
    if (t.shape[d] == 0) return true;
    if (t.shape[d] != 1 && t.strides[d] != expected) return false;
    expected *= t.shape[d];
  }
  return true;
}

// A tensor that is only looked at while `object` lives.
nb::object read_exchange(nb::handle object, const TensorExchange& exchange, const std::string& name, TensorView& view) {
  nb::object keep = resolved(nb::borrow(object));
  DlTensor t;
  if (exchange.borrow(keep.ptr(), &t) != 0) throw nb::python_error();
  if (t.device.device_type != nb::device::cpu::value)
    throw Error(ErrorKind::InvalidInput, fmt::format("input '{}' is not in the CPU's memory", name), "tensor.cpu()");
  if (!is_contiguous(t)) {
    keep = keep.attr("contiguous")();
    if (exchange.borrow(keep.ptr(), &t) != 0) throw nb::python_error();
  }
  view.dtype = dtype_of_dlpack(t.dtype);
  if (view.dtype == DType::Undefined)
    refuse_dtype(name, fmt::format("DLPack type {}/{}", static_cast<int>(t.dtype.code), t.dtype.bits));
  view.dims.assign(t.shape, t.shape + t.ndim);
  view.data = static_cast<std::byte*>(t.data) + t.byte_offset;
  return keep;
}

// Memory that Python owns, for as long as C++ holds the pointer.
std::shared_ptr<const void> keep_alive(nb::object object) {
  return {object.release().ptr(), [](const void* p) {
            if (!Py_IsInitialized()) return;
            nb::gil_scoped_acquire locked;
            Py_DECREF(static_cast<PyObject*>(const_cast<void*>(p)));
          }};
}

}  // namespace

void import_numpy() {
  if (PyArray_ImportNumPyAPI() < 0) throw nb::python_error();
}

std::string numpy_name(DType dtype) {
  for (const Row& r : rows)
    if (r.dtype == dtype) return r.name;
  for (const ExtensionRow& r : extension_rows)
    if (r.dtype == dtype) return r.name;
  return std::string(ingot::name(dtype));
}

DType dtype_of_name(const std::string& name) {
  for (const Row& r : rows)
    if (name == r.name) return r.dtype;
  for (const ExtensionRow& r : extension_rows)
    if (name == r.name) return r.dtype;
  return DType::Undefined;
}

nb::object read_array(nb::handle object, const std::string& name, TensorView& view) {
  PyObject* p = object.ptr();
  if (PyArray_Check(p)) return read_numpy(reinterpret_cast<PyArrayObject*>(p), name, view);
  if (PyArray_CheckScalar(p)) {  // np.float32(1): an array of rank 0
    nb::object array = nb::steal(PyArray_FromScalar(p, nullptr));
    if (!array.is_valid()) throw nb::python_error();
    return read_numpy(reinterpret_cast<PyArrayObject*>(array.ptr()), name, view);
  }
  const TensorExchange* exchange = find_exchange(object.type());
  if (exchange && exchange->borrow) return read_exchange(object, *exchange, name, view);
  if (PyObject_HasAttrString(p, "__dlpack__")) return read_dlpack(resolved(nb::borrow(object)), name, view);
  throw Error(ErrorKind::InvalidInput,
              fmt::format("input '{}' is a {}, not an array", name, nb::type_name(object.type()).c_str()),
              "give a numpy array, a torch tensor, or anything else with __dlpack__");
}

OutputBuffer::OutputBuffer(OutputBuffer&& other) noexcept
    : dtype_(other.dtype_), dims_(std::move(other.dims_)), data_(std::exchange(other.data_, nullptr)) {}

OutputBuffer::~OutputBuffer() { give_back_output(data_); }

void* OutputBuffer::allocate(DType dtype, const std::vector<int64_t>& dims) {
  give_back_output(std::exchange(data_, nullptr));
  dtype_ = dtype;
  dims_ = dims;
  int64_t elements = 1;
  for (int64_t d : dims) elements *= d;
  const int64_t size = std::max(byte_size(dtype, elements), bits(dtype) < 8 ? elements : 0);  // room to unpack
  data_ = take_output(static_cast<size_t>(size));
  return data_;
}

nb::object OutputBuffer::to_numpy() {
  int number = -1;
  for (const Row& r : rows)
    if (r.dtype == dtype_) number = r.number;
  for (size_t i = 0; i < kExtensions; i++) {
    if (extension_rows[i].dtype != dtype_) continue;
    number = extension_numbers()[i];
    if (number < 0)
      throw Error(ErrorKind::Unsupported,
                  fmt::format("numpy has no {} of its own, and an output has this type", extension_rows[i].name),
                  "install the package ml_dtypes");
  }
  if (number < 0) unsupported("numpy cannot hold an output of type {}", ingot::name(dtype_));
  if (bits(dtype_) < 8) {
    int64_t elements = 1;
    for (int64_t d : dims_) elements *= d;
    unpack(static_cast<uint8_t*>(data_), elements, bits(dtype_), is_integer(dtype_) && is_signed(dtype_));
  }
  PyArray_Descr* descr = PyArray_DescrFromType(number);
  PyObject* array = PyArray_NewFromDescr(&PyArray_Type, descr, static_cast<int>(dims_.size()), dims_.data(), nullptr,
                                         data_, NPY_ARRAY_CARRAY, nullptr);
  if (!array) throw nb::python_error();
  nb::object result = nb::steal(array);
  nb::capsule owner(data_, [](void* p) noexcept { give_back_output(p); });
  data_ = nullptr;
  if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array), owner.release().ptr()) < 0)
    throw nb::python_error();
  return result;
}

namespace {

// What a tensor made of an OutputBuffer owns.
struct OwnedTensor {
  DlManagedTensor managed;
  std::vector<int64_t> dims, strides;
  void* data;
};

void delete_owned(DlManagedTensor* t) {
  auto* owned = static_cast<OwnedTensor*>(t->context);
  give_back_output(owned->data);
  delete owned;
}

std::vector<int64_t> row_major(const std::vector<int64_t>& dims) {
  std::vector<int64_t> strides(dims.size(), 1);
  for (size_t d = dims.size(); d-- > 1;) strides[d - 1] = strides[d] * std::max<int64_t>(dims[d], 1);
  return strides;
}

}  // namespace

nb::object OutputBuffer::to_tensor(const TensorExchange& exchange) {
  const nb::dlpack::dtype dtype = dlpack_of_dtype(dtype_);
  auto owned = std::make_unique<OwnedTensor>();
  owned->strides = row_major(dims_);
  owned->dims = std::move(dims_);
  owned->data = std::exchange(data_, nullptr);
  owned->managed.context = owned.get();
  owned->managed.deleter = delete_owned;
  DlTensor& t = owned->managed.tensor;
  t.data = owned->data;
  t.device = {nb::device::cpu::value, 0};
  t.ndim = static_cast<int32_t>(owned->dims.size());
  t.dtype = dtype;
  t.shape = owned->dims.data();
  t.strides = owned->strides.data();
  void* object = nullptr;
  // From here on the tensor owns the memory, or the deleter has run.
  if (exchange.to_python(&owned.release()->managed, &object) != 0) throw nb::python_error();
  return nb::steal(static_cast<PyObject*>(object));
}

namespace {

ConstantPtr read_strings(nb::handle object, const std::string& name) {
  nb::object array = nb::module_::import_("numpy").attr("asarray")(object);
  const std::string kind = nb::cast<std::string>(array.attr("dtype").attr("kind"));
  auto out = std::make_shared<Constant>();
  out->dtype = DType::String;
  for (nb::handle d : array.attr("shape")) out->dims.push_back(nb::cast<int64_t>(d));
  for (nb::handle item : array.attr("ravel")().attr("tolist")()) {
    if (nb::isinstance<nb::bytes>(item))
      out->strings.emplace_back(nb::cast<nb::bytes>(item).c_str(), nb::cast<nb::bytes>(item).size());
    else if (nb::isinstance<nb::str>(item))
      out->strings.push_back(nb::cast<std::string>(item));
    else
      refuse_dtype(name, "numpy type " + kind + " where strings are needed");
  }
  return out;
}

}  // namespace

Value read_value(nb::handle object, const std::string& name, const TensorInfo& type, std::vector<nb::object>& keep) {
  const bool optional = type.form == Form::Optional || type.form == Form::OptionalSequence;
  if (optional && object.is_none()) return {};
  if (type.form == Form::Sequence || type.form == Form::OptionalSequence) {
    if (!PyList_Check(object.ptr()) && !PyTuple_Check(object.ptr()))
      throw Error(ErrorKind::InvalidInput,
                  fmt::format("input '{}' is a {}, not a list", name, nb::type_name(object.type()).c_str()),
                  "the model takes a sequence of arrays here");
    TensorInfo item = type;
    item.form = Form::Tensor;
    std::vector<Value> items;
    for (nb::handle h : object) items.push_back(read_value(h, name, item, keep));
    return Value(std::move(items));
  }
  if (type.dtype == DType::String) return read_strings(object, name);
  TensorView view;
  keep.push_back(read_array(object, name, view));
  return borrow(view);
}

ConstantPtr read_constant(nb::handle array, const std::string& name) {
  TensorView view;
  nb::object keep = read_array(array, name, view);
  auto c = std::make_shared<Constant>();
  c->dtype = view.dtype;
  c->dims = view.dims;
  const int64_t bytes = byte_size(view.dtype, c->elements());
  if (bytes > 0 && !view.data) invalid_input("'{}' has no data", name);
  c->bytes = {static_cast<const std::byte*>(view.data), static_cast<size_t>(bytes)};
  c->owner = keep_alive(std::move(keep));
  return c;
}

nb::object to_python(const Value& v) {
  if (v.is_none()) return nb::none();
  if (v.is_sequence()) {
    nb::list list;
    for (const Value& item : v.items()) list.append(to_python(item));
    return list;
  }
  const Constant& c = v.tensor();
  if (c.dtype == DType::String) {
    nb::list list;
    for (const std::string& s : c.strings) list.append(nb::str(s.data(), s.size()));
    nb::module_ numpy = nb::module_::import_("numpy");
    nb::object array = numpy.attr("empty")(c.strings.size(), "dtype"_a = "object");
    array.attr("__setitem__")(nb::slice(nb::none(), nb::none(), nb::none()), list);
    nb::list dims;
    for (int64_t d : c.dims) dims.append(d);
    return array.attr("reshape")(nb::tuple(dims));
  }
  OutputBuffer buffer;
  void* to = buffer.allocate(c.dtype, c.dims);
  std::copy(c.bytes.begin(), c.bytes.end(), static_cast<std::byte*>(to));
  return buffer.to_numpy();
}

}  // namespace ingot::python
