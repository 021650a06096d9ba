#include "python/ports.h"

#include <algorithm>

#include "base/error.h"
#include "python/exchange.h"

namespace ingot::python {
namespace {

std::string list_names(const std::vector<Port>& ports) {
  std::string out;
  for (const Port& p : ports) out += (out.empty() ? "'" : ", '") + p.name + "'";
  return out.empty() ? "none" : out;
}

// The arguments of one call. Kept per thread between calls so that a call allocates nothing of its own; taken out
// while in use, since reading an argument may run Python code that calls a model in turn.
struct Inputs {
  std::vector<TensorView> views;
  std::vector<nb::object> keep;
};

void set_item(nb::handle dict, nb::handle key, const nb::object& value) {
  if (PyDict_SetItem(dict.ptr(), key.ptr(), value.ptr()) < 0) throw nb::python_error();
}

}  // namespace

NamedPorts::NamedPorts(std::vector<Port> ports) : ports_(std::move(ports)) {
  for (const Port& p : ports_) {
    PyObject* name = PyUnicode_FromStringAndSize(p.name.data(), static_cast<Py_ssize_t>(p.name.size()));
    if (!name) throw nb::python_error();
    PyUnicode_InternInPlace(&name);
    names_.push_back(nb::steal(name));
  }
}

bool NamedPorts::all_numbers() const {
  return std::all_of(ports_.begin(), ports_.end(),
                     [](const Port& p) { return p.form == Form::Tensor && p.dtype != DType::String; });
}

void NamedPorts::each(nb::handle given, const std::function<void(size_t, const nb::object&)>& read) const {
  const size_t count = ports_.size();
  PyObject* p = given.ptr();
  // Reading an input may run Python code that changes the list or dict: each one is held, and looked for anew.
  if (PyList_Check(p) || PyTuple_Check(p)) {
    for (size_t i = 0; i < std::max<size_t>(count, 1); i++) {
      const auto found = static_cast<size_t>(PySequence_Fast_GET_SIZE(p));
      if (found != count)
        throw Error(ErrorKind::InvalidInput, fmt::format("the model has {} inputs, {} were given", count, found),
                    "its inputs are " + list_names(ports_));
      if (i < count) read(i, nb::borrow(PySequence_Fast_GET_ITEM(p, static_cast<Py_ssize_t>(i))));
    }
    return;
  }
  nb::object dict = nb::borrow(given);
  if (!PyDict_Check(p)) {
    // Tokenizers return mappings that are no dicts.
    if (!PyMapping_Check(p) || !PyObject_HasAttrString(p, "keys"))
      throw Error(
          ErrorKind::InvalidInput,
          fmt::format("inputs have to be a list, a tuple or a dict, not a {}", nb::type_name(given.type()).c_str()),
          "for a model with one input: graph.inference([array])");
    dict = nb::steal(PyDict_New());
    if (PyDict_Update(dict.ptr(), p) < 0) throw nb::python_error();
    p = dict.ptr();
  }
  for (size_t i = 0; i < count; i++) {
    PyObject* value = PyDict_GetItemWithError(p, names_[i].ptr());
    if (!value) {
      if (PyErr_Occurred()) throw nb::python_error();
      throw Error(ErrorKind::InvalidInput, fmt::format("input '{}' is missing", ports_[i].name),
                  "the model's inputs are " + list_names(ports_));
    }
    read(i, nb::borrow(value));
  }
  if (static_cast<size_t>(PyDict_Size(p)) == count) return;
  for (auto [key, value] : nb::borrow<nb::dict>(dict)) {
    const std::string name = nb::str(key).c_str();
    bool known = false;
    for (const Port& port : ports_) known = known || port.name == name;
    if (!known)
      throw Error(ErrorKind::InvalidInput, fmt::format("the model has no input '{}'", name),
                  "its inputs are " + list_names(ports_));
  }
}

std::vector<Value> NamedPorts::read_values(nb::handle given, std::vector<nb::object>& keep) const {
  std::vector<Value> values(ports_.size());
  each(given, [&](size_t i, const nb::object& value) {
    TensorInfo type;
    type.dtype = ports_[i].dtype;
    type.form = ports_[i].form;
    values[i] = read_value(value, ports_[i].name, type, keep);
  });
  return values;
}

nb::object NamedPorts::as_dict(std::vector<OutputBuffer>& buffers) const {
  nb::object result = nb::steal(PyDict_New());
  for (size_t i = 0; i < buffers.size(); i++) set_item(result, names_[i], buffers[i].to_numpy());
  return result;
}

nb::object NamedPorts::as_dict(const std::vector<Value>& values) const {
  nb::object result = nb::steal(PyDict_New());
  for (size_t i = 0; i < values.size(); i++) set_item(result, names_[i], to_python(values[i]));
  return result;
}

std::vector<OutputBuffer> run_ports(const NamedPorts& inputs, size_t outputs, nb::handle given, const RunLimits& limits,
                                    const RunViews& run) {
  static thread_local Inputs spare;
  Inputs in = std::move(spare);
  in.views.resize(inputs.size());
  in.keep.resize(inputs.size());
  inputs.each(given, [&](size_t i, const nb::object& value) {
    in.keep[i] = read_array(value, inputs.ports()[i].name, in.views[i]);
  });
  std::vector<OutputBuffer> out(outputs);
  StoppableCall call(limits);
  call([&] {
    run(in.views,
        [&out](size_t i, DType dtype, const std::vector<int64_t>& dims) { return out[i].allocate(dtype, dims); });
  });
  for (nb::object& o : in.keep) o.reset();
  spare = std::move(in);
  return out;
}

nb::object as_tensors(std::vector<OutputBuffer>& buffers, nb::handle tensor_type) {
  const TensorExchange& exchange = exchange_of(tensor_type);
  nb::object result = nb::steal(PyList_New(static_cast<Py_ssize_t>(buffers.size())));
  for (size_t i = 0; i < buffers.size(); i++)
    PyList_SET_ITEM(result.ptr(), static_cast<Py_ssize_t>(i), buffers[i].to_tensor(exchange).release().ptr());
  return result;
}

}  // namespace ingot::python
