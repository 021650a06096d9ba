#include "python/weights.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <bit>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/hash.h"
#include "python/memory_watch.h"
#include "python/weight_files.h"

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

// The memory of a tensor, from its first element to its last, whatever lies between.
std::span<const std::byte> memory_of(PyObject* tensor) {
  const nb::handle t(tensor);
  const auto shape = nb::cast<std::vector<int64_t>>(nb::tuple(t.attr("shape"))),
             strides = nb::cast<std::vector<int64_t>>(t.attr("stride")());
  int64_t elements = 1;
  for (size_t d = 0; d < shape.size(); d++) {
    if (shape[d] == 0) return {};
    elements += (shape[d] - 1) * strides[d];
  }
  const auto bytes = static_cast<size_t>(elements * nb::cast<int64_t>(t.attr("itemsize")));
  return {reinterpret_cast<const std::byte*>(TensorAccess::get().address(tensor)), bytes};  // NOLINT
}

// Addresses, versions and contents of the weights among the arguments of a call, and of tensors that are always the
// same, as they were when it was made. torch counts writes to a tensor (`_version`), except those through `.data` and
// through memory shared with others; for these the memory itself is looked at, unless only versions are to count.
class WeightWatch {
 public:
  WeightWatch(const nb::list& arguments, std::vector<size_t> positions, const nb::list& held, bool contents)
      : positions_(std::move(positions)), held_(held) {
    std::vector<std::span<const std::byte>> regions;
    for (size_t p : positions_) add(at(arguments, p), regions);
    for (nb::handle tensor : held_) add(tensor.ptr(), regions);
    if (contents) memory_.emplace(regions);
  }

  bool same(const nb::list& arguments) const {
    const TensorAccess& access = TensorAccess::get();
    for (size_t i = 0; i < positions_.size(); i++)
      if (!is_state(access, at(arguments, positions_[i]), states_[i])) return false;
    for (size_t i = 0; i < held_.size(); i++)
      if (!is_state(access, PyList_GET_ITEM(held_.ptr(), static_cast<Py_ssize_t>(i)), states_[positions_.size() + i]))
        return false;
    if (!memory_) return true;
    if (memory_->tracked_bytes() + memory_->read_bytes() < kWithoutOthers) return memory_->same();
    nb::gil_scoped_release unlocked;
    return memory_->same();
  }

  size_t tracked_bytes() const { return memory_ ? memory_->tracked_bytes() : 0; }
  size_t read_bytes() const { return memory_ ? memory_->read_bytes() : 0; }

 private:
  static constexpr int64_t kNotCounted = -1;  // of tensors made under inference_mode
  struct State {
    int64_t address = 0, version = 0;
  };

  // Looking at less than this is over before another thread has the interpreter.
  static constexpr size_t kWithoutOthers = 1 << 20;

  void add(PyObject* tensor, std::vector<std::span<const std::byte>>& regions) {
    const TensorAccess& access = TensorAccess::get();
    access.check(tensor);
    const bool counted = !nb::cast<bool>(nb::handle(tensor).attr("is_inference")());
    states_.push_back({access.address(tensor), counted ? access.version(tensor) : kNotCounted});
    regions.push_back(memory_of(tensor));
  }

  static bool is_state(const TensorAccess& access, PyObject* tensor, const State& s) {
    access.check(tensor);
    return access.address(tensor) == s.address && (s.version == kNotCounted || access.version(tensor) == s.version);
  }

  static PyObject* at(const nb::list& arguments, size_t position) {
    if (position >= arguments.size())
      invalid_input("weight {} of a call with {} arguments", position, arguments.size());
    return PyList_GET_ITEM(arguments.ptr(), static_cast<Py_ssize_t>(position));
  }

  std::vector<size_t> positions_;
  nb::list held_;
  std::vector<State> states_;
  std::optional<MemoryWatch> memory_;
};

// The same object, or a number, text or tuple that nobody can tell from it.
bool same_value(PyObject* now, PyObject* then) {
  if (now == then) return true;
  if (!now || !then || Py_TYPE(now) != Py_TYPE(then)) return false;
  if (PyFloat_CheckExact(now))  // 0.0 and -0.0 are two numbers, and a NaN is itself
    return std::bit_cast<uint64_t>(PyFloat_AS_DOUBLE(now)) == std::bit_cast<uint64_t>(PyFloat_AS_DOUBLE(then));
  if (PyLong_CheckExact(now) || PyUnicode_CheckExact(now) || PyBytes_CheckExact(now))
    return PyObject_RichCompareBool(now, then, Py_EQ) == 1;
  if (!PyTuple_CheckExact(now) || PyTuple_GET_SIZE(now) != PyTuple_GET_SIZE(then)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(now); i++)
    if (!same_value(PyTuple_GET_ITEM(now, i), PyTuple_GET_ITEM(then, i))) return false;
  return true;
}

// What a captured graph takes for granted: entries of dicts, numbers of their entries, items of lists, contents of
// closures' cells, and other containers that have to equal a copy of them.
class ObjectWatch {
 public:
  using Pairs = std::vector<std::pair<nb::object, nb::object>>;

  ObjectWatch(const std::vector<std::pair<nb::dict, nb::object>>& slots, const std::vector<nb::dict>& sizes,
              const std::vector<nb::list>& lists, const std::vector<nb::object>& cells, Pairs copies)
      : copies_(std::move(copies)) {
    for (const auto& [table, key] : slots) slots_.push_back({table, key, table[key]});
    for (const nb::dict& table : sizes) sizes_.emplace_back(table, table.size());
    for (const nb::list& list : lists) lists_.emplace_back(list, nb::steal<nb::tuple>(PyList_AsTuple(list.ptr())));
    for (const nb::object& cell : cells) cells_.emplace_back(cell, nb::steal<nb::object>(PyCell_Get(cell.ptr())));
  }

  bool same() const {
    for (const Slot& s : slots_)
      if (!same_value(PyDict_GetItemWithError(s.table.ptr(), s.key.ptr()), s.value.ptr())) return false;
    for (const auto& [table, size] : sizes_)
      if (table.size() != size) return false;
    for (const auto& [list, items] : lists_) {
      const Py_ssize_t size = PyTuple_GET_SIZE(items.ptr());
      if (PyList_GET_SIZE(list.ptr()) != size) return false;
      for (Py_ssize_t i = 0; i < size; i++)
        if (!same_value(PyList_GET_ITEM(list.ptr(), i), PyTuple_GET_ITEM(items.ptr(), i))) return false;
    }
    for (const auto& [cell, value] : cells_)
      if (!same_value(PyCell_GET(cell.ptr()), value.ptr())) return false;
    for (const auto& [now, then] : copies_) {
      const int equal = PyObject_RichCompareBool(now.ptr(), then.ptr(), Py_EQ);
      if (equal < 0) PyErr_Clear();  // items that cannot be compared
      if (equal != 1) return false;
    }
    return true;
  }

 private:
  struct Slot {
    nb::dict table;
    nb::object key, value;
  };
  std::vector<Slot> slots_;
  std::vector<std::pair<nb::dict, size_t>> sizes_;
  std::vector<std::pair<nb::list, nb::tuple>> lists_;
  Pairs cells_, copies_;
};

std::pair<size_t, std::string> move_weights_to_file(const nb::list& tensors, const std::string& folder, bool watched) {
  std::vector<std::span<const std::byte>> regions;
  for (nb::handle t : tensors) {
    TensorAccess::get().check(t.ptr());
    regions.push_back(memory_of(t.ptr()));
  }
  nb::gil_scoped_release unlocked;
  const MovedWeights moved = move_to_file(regions, folder, watched);
  return {moved.bytes, moved.problem};
}

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
      .def(nb::init<const nb::list&, std::vector<size_t>, const nb::list&, bool>(), "arguments"_a, "positions"_a,
           "held"_a, "contents"_a,
           nb::sig("def __init__(self, arguments: list[typing.Any], positions: collections.abc.Sequence[int], "
                   "held: list[typing.Any], contents: bool) -> None"))
      .def("same", &WeightWatch::same, "arguments"_a, nb::sig("def same(self, arguments: list[typing.Any]) -> bool"),
           "True if the weights in these arguments have the addresses, versions and contents they had.")
      .def_prop_ro("tracked_bytes", &WeightWatch::tracked_bytes, "Bytes that the kernel watches.")
      .def_prop_ro("read_bytes", &WeightWatch::read_bytes, "Bytes that same() reads.");
  nb::class_<ObjectWatch>(m, "ObjectWatch", "Whether what objects hold is still what it was.")
      .def(nb::init<const std::vector<std::pair<nb::dict, nb::object>>&, const std::vector<nb::dict>&,
                    const std::vector<nb::list>&, const std::vector<nb::object>&, ObjectWatch::Pairs>(),
           "slots"_a, "sizes"_a, "lists"_a, "cells"_a, "copies"_a,
           nb::sig(
               "def __init__(self, slots: collections.abc.Sequence[tuple[dict[typing.Any, typing.Any], typing.Any]], "
               "sizes: collections.abc.Sequence[dict[typing.Any, typing.Any]], "
               "lists: collections.abc.Sequence[list[typing.Any]], "
               "cells: collections.abc.Sequence[typing.Any], "
               "copies: collections.abc.Sequence[tuple[typing.Any, typing.Any]]) -> None"))
      .def("same", &ObjectWatch::same);
  m.def("move_weights_to_file", &move_weights_to_file, "tensors"_a, "folder"_a, "watched"_a,
        nb::sig("def move_weights_to_file(tensors: list[typing.Any], folder: str, watched: bool) -> tuple[int, str]"),
        "Has the memory of large tensors mapped from a file in the folder that has no name: they are read from there "
        "when\n"
        "somebody reads them. Returns the bytes that are in such files now, and why there are not more.");
  m.def("content_hashes", &content_hashes, "tensors"_a,
        nb::sig("def content_hashes(tensors: list[typing.Any]) -> list[str]"),
        "A hash of all bytes of each tensor; they have to be contiguous.");
}

}  // namespace ingot::python
