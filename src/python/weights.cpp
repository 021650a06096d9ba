#include "python/weights.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "base/error.h"
#include "base/hash.h"

namespace ingot::python {
namespace nb = nanobind;
namespace {

// torch.Tensor's `_version` and `data_ptr` called without a look-up by name: every call of a compiled model asks each
// of its weights.
class TensorAccess {
 public:
  static const TensorAccess& get() {
    static const TensorAccess access;
    return access;
  }

  int64_t version(PyObject* tensor) const {
    return number(version_->d_getset->get(tensor, version_->d_getset->closure), tensor);
  }
  int64_t address(PyObject* tensor) const { return number(address_->d_method->ml_meth(tensor, nullptr), tensor); }
  void check(PyObject* object) const {
    if (!PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(type_.ptr())))
      invalid_input("a weight has to be a torch.Tensor, not a {}", Py_TYPE(object)->tp_name);
  }

 private:
  TensorAccess() : type_(nb::module_::import_("torch._C").attr("TensorBase")) {
    nb::object version = type_.attr("_version"), address = type_.attr("data_ptr");
    if (!PyObject_TypeCheck(version.ptr(), &PyGetSetDescr_Type) ||
        !PyObject_TypeCheck(address.ptr(), &PyMethodDescr_Type))
      fail(ErrorKind::Unsupported, "this version of torch keeps versions and addresses of tensors in another way");
    version_ = reinterpret_cast<PyGetSetDescrObject*>(version.release().ptr());
    address_ = reinterpret_cast<PyMethodDescrObject*>(address.release().ptr());
  }

  static int64_t number(PyObject* result, PyObject*) {
    if (!result) throw nb::python_error();
    const int64_t value = PyLong_AsLongLong(result);
    Py_DECREF(result);
    if (value == -1 && PyErr_Occurred()) throw nb::python_error();
    return value;
  }

  nb::object type_;
  PyGetSetDescrObject* version_ = nullptr;
  PyMethodDescrObject* address_ = nullptr;
};

int64_t bytes_of(PyObject* tensor) { return nb::cast<int64_t>(nb::handle(tensor).attr("nbytes")); }

constexpr int kSamples = 2;

// Calls take(place) for a few places spread over memory of at least a word.
template <class Take>
void each_sample(int64_t address, int64_t bytes, const Take& take) {
  const auto* memory = reinterpret_cast<const std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
  const int64_t last = bytes - static_cast<int64_t>(sizeof(uint64_t));
  for (int i = 0; i < kSamples; i++) take(memory + last * (i + 1) / (kSamples + 1));
}

uint64_t sample(int64_t address, int64_t bytes) {
  uint64_t mixed = 0;
  if (bytes < static_cast<int64_t>(sizeof(mixed))) {
    if (bytes > 0)
      std::memcpy(&mixed, reinterpret_cast<const void*>(address),  // NOLINT(performance-no-int-to-ptr)
                  static_cast<size_t>(bytes));
    return mixed;
  }
  each_sample(address, bytes, [&](const std::byte* place) {
    uint64_t word = 0;
    std::memcpy(&word, place, sizeof(word));
    mixed = mixed * 0x9E3779B97F4A7C15ULL + word;
  });
  return mixed;
}

// Addresses, versions and samples of the weights among the arguments of a call, as they were when it was made. torch
// counts writes to a tensor (`_version`), except those through `.data` and through memory shared with others; the
// samples find these when they change all of a weight, which is what such code does.
class WeightWatch {
 public:
  WeightWatch(const nb::list& arguments, std::vector<size_t> positions) : positions_(std::move(positions)) {
    const TensorAccess& access = TensorAccess::get();
    for (size_t p : positions_) {
      PyObject* tensor = at(arguments, p);
      access.check(tensor);
      State s{access.address(tensor), access.version(tensor), bytes_of(tensor), 0};
      s.sample = sample(s.address, s.bytes);
      states_.push_back(s);
    }
  }

  bool same(const nb::list& arguments) const {
    const TensorAccess& access = TensorAccess::get();
    for (size_t i = 0; i < positions_.size(); i++) {
      PyObject* tensor = at(arguments, positions_[i]);
      access.check(tensor);
      const State& s = states_[i];
      // The weights were all read since the last call, so these are not in any cache: fetched while the rest is looked
      // at.
      if (s.bytes >= static_cast<int64_t>(sizeof(uint64_t)))
        each_sample(s.address, s.bytes, [](const std::byte* place) { __builtin_prefetch(place); });
      if (access.address(tensor) != s.address || access.version(tensor) != s.version) return false;
    }
    for (const State& s : states_)
      if (sample(s.address, s.bytes) != s.sample) return false;
    return true;
  }

 private:
  struct State {
    int64_t address = 0, version = 0, bytes = 0;
    uint64_t sample = 0;
  };

  static PyObject* at(const nb::list& arguments, size_t position) {
    if (position >= arguments.size())
      invalid_input("weight {} of a call with {} arguments", position, arguments.size());
    return PyList_GET_ITEM(arguments.ptr(), static_cast<Py_ssize_t>(position));
  }

  std::vector<size_t> positions_;
  std::vector<State> states_;
};

// Entries of dicts that have to be the very objects they were, and dicts that have to be as large as they were: what a
// captured graph takes for granted of a module.
class ObjectWatch {
 public:
  ObjectWatch(const std::vector<std::pair<nb::dict, nb::object>>& slots, const std::vector<nb::dict>& sizes) {
    for (const auto& [table, key] : slots) slots_.push_back({table, key, table[key]});
    for (const nb::dict& table : sizes) sizes_.emplace_back(table, table.size());
  }

  bool same() const {
    for (const Slot& s : slots_)
      if (PyDict_GetItemWithError(s.table.ptr(), s.key.ptr()) != s.value.ptr()) return false;
    for (const auto& [table, size] : sizes_)
      if (table.size() != size) return false;
    return true;
  }

 private:
  struct Slot {
    nb::dict table;
    nb::object key, value;
  };
  std::vector<Slot> slots_;
  std::vector<std::pair<nb::dict, size_t>> sizes_;
};

std::vector<std::string> content_hashes(const nb::list& tensors) {
  const TensorAccess& access = TensorAccess::get();
  std::vector<std::span<const std::byte>> contents;
  for (nb::handle t : tensors) {
    access.check(t.ptr());
    if (!nb::cast<bool>(t.attr("is_contiguous")())) invalid_input("a tensor to hash has to be contiguous");
    const auto* memory =
        reinterpret_cast<const std::byte*>(access.address(t.ptr()));  // NOLINT(performance-no-int-to-ptr)
    contents.emplace_back(memory, static_cast<size_t>(bytes_of(t.ptr())));
  }
  nb::gil_scoped_release unlocked;
  std::vector<std::string> out;
  for (const auto& c : contents) out.push_back(hash128_hex(c));
  return out;
}

}  // namespace

void add_weights(nb::module_& m) {
  using nb::literals::operator""_a;
  nb::class_<WeightWatch>(m, "WeightWatch", "Whether weights are still what they were.")
      .def(nb::init<const nb::list&, std::vector<size_t>>(), "arguments"_a, "positions"_a,
           nb::sig("def __init__(self, arguments: list[typing.Any], positions: collections.abc.Sequence[int]) -> None"))
      .def("same", &WeightWatch::same, "arguments"_a, nb::sig("def same(self, arguments: list[typing.Any]) -> bool"),
           "True if the weights in these arguments have the addresses, versions and sampled values they had.");
  nb::class_<ObjectWatch>(m, "ObjectWatch", "Whether entries of dicts are still the objects they were.")
      .def(nb::init<const std::vector<std::pair<nb::dict, nb::object>>&, const std::vector<nb::dict>&>(), "slots"_a,
           "sizes"_a,
           nb::sig("def __init__(self, slots: collections.abc.Sequence[tuple[dict[str, typing.Any], str]], sizes: "
                   "collections.abc.Sequence[dict[typing.Any, typing.Any]]) -> None"))
      .def("same", &ObjectWatch::same);
  m.def("content_hashes", &content_hashes, "tensors"_a,
        nb::sig("def content_hashes(tensors: list[typing.Any]) -> list[str]"),
        "A hash of all bytes of each tensor; they have to be contiguous.");
}

}  // namespace ingot::python
