#include "python/exchange.h"

#include "base/error.h"

namespace ingot::python {
namespace {

constexpr uint32_t kKnownMajor = 1;

struct Row {
  DType dtype;
  uint8_t code, bits;
};
constexpr Row rows[] = {
    {DType::I8, 0, 8},          {DType::I16, 0, 16},    {DType::I32, 0, 32},        {DType::I64, 0, 64},
    {DType::U8, 1, 8},          {DType::U16, 1, 16},    {DType::U32, 1, 32},        {DType::U64, 1, 64},
    {DType::F16, 2, 16},        {DType::F32, 2, 32},    {DType::F64, 2, 64},        {DType::BF16, 4, 16},
    {DType::C64, 5, 64},        {DType::C128, 5, 128},  {DType::Bool, 6, 8},        {DType::F8E4M3FN, 10, 8},
    {DType::F8E4M3FNUZ, 11, 8}, {DType::F8E5M2, 12, 8}, {DType::F8E5M2FNUZ, 13, 8}, {DType::F8E8M0, 14, 8},
};

}  // namespace

const TensorExchange* find_exchange(nb::handle type) {
  PyObject* attribute = PyObject_GetAttrString(type.ptr(), "__dlpack_c_exchange_api__");
  if (!attribute) {
    PyErr_Clear();
    return nullptr;
  }
  const nb::object capsule = nb::steal(attribute);
  const auto* exchange =
      static_cast<const TensorExchange*>(PyCapsule_GetPointer(capsule.ptr(), PyCapsule_GetName(capsule.ptr())));
  if (!exchange) PyErr_Clear();
  while (exchange && exchange->header.version.major > kKnownMajor)
    exchange = static_cast<const TensorExchange*>(exchange->header.older);
  return exchange;
}

const TensorExchange& exchange_of(nb::handle type) {
  // Of the class asked for last, which is kept alive: every call of a compiled model asks.
  static PyObject* last_type = nullptr;
  static const TensorExchange* last = nullptr;
  if (type.ptr() == last_type) return *last;
  const TensorExchange* exchange = find_exchange(type);
  if (!exchange)
    throw Error(ErrorKind::InvalidInput,
                fmt::format("{} has no __dlpack_c_exchange_api__ of version {}", nb::repr(type).c_str(), kKnownMajor),
                "give a class of tensors, such as torch.Tensor, or use inference");
  Py_XSETREF(last_type, nb::borrow(type).release().ptr());
  last = exchange;
  return *exchange;
}

DType dtype_of_dlpack(nb::dlpack::dtype t) {
  if (t.lanes != 1) return DType::Undefined;
  for (const Row& r : rows)
    if (r.code == t.code && r.bits == t.bits) return r.dtype;
  return DType::Undefined;
}

nb::dlpack::dtype dlpack_of_dtype(DType dtype) {
  for (const Row& r : rows)
    if (r.dtype == dtype) return {r.code, r.bits, 1};
  unsupported("DLPack cannot hold a tensor of type {}", ingot::name(dtype));
}

}  // namespace ingot::python
