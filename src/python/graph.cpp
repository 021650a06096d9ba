#include "python/graph.h"

#include <nanobind/stl/string.h>

#include <filesystem>
#include <map>

#include "base/error.h"
#include "emitter/ir_folder.h"
#include "passes/autocast.h"
#include "python/exchange.h"

namespace ingot::python {
namespace {

std::string list_names(const std::vector<Port>& ports) {
  std::string out;
  for (const Port& p : ports) out += (out.empty() ? "'" : ", '") + p.name + "'";
  return out.empty() ? "none" : out;
}

nb::object attribute_value(const Attribute& attribute) {
  return std::visit(
      [](const auto& value) -> nb::object {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, ConstantPtr>) {
          OutputBuffer buffer;
          void* to = buffer.allocate(value->dtype, value->dims);
          std::copy(value->bytes.begin(), value->bytes.end(), static_cast<std::byte*>(to));
          return buffer.to_numpy();
        } else if constexpr (std::is_same_v<T, GraphPtr>) {
          return nb::str(fmt::format("<graph '{}' with {} nodes>", value->name, value->nodes.size()).c_str());
        } else if constexpr (std::is_same_v<T, std::string>) {
          return nb::str(value.c_str(), value.size());
        } else if constexpr (std::is_same_v<T, int64_t>) {
          return nb::int_(value);
        } else if constexpr (std::is_same_v<T, float>) {
          return nb::float_(value);
        } else {
          nb::list list;
          for (const auto& item : value) list.append(item);
          return list;
        }
      },
      attribute);
}

}  // namespace

// The arguments of one call. Kept per thread between calls so that a call allocates nothing of its own; taken out
// while in use, since reading an argument may run Python code that calls a model in turn.
struct PyGraph::Inputs {
  std::vector<TensorView> views;
  std::vector<nb::object> keep;
};

std::unique_ptr<PyGraph> PyGraph::open(const std::string& path, const CompileOptions& options,
                                       const SessionOptions& session_options, bool allow_library) {
  auto self = std::make_unique<PyGraph>();
  self->path_ = path;
  self->options_ = options;
  self->session_options_ = session_options;
  {
    nb::gil_scoped_release unlocked;
    if (is_library_file(path)) {
      if (!allow_library)
        throw Error(ErrorKind::InvalidInput, fmt::format("{}: is compiled already", path), "load it with ingot.load");
      self->library_ = std::make_unique<LibraryModel>(path, session_options.threads);
      self->inputs_ = self->library_->inputs();
      self->outputs_ = self->library_->outputs();
    } else {
      self->graph_ = prepare_model(path, options, &self->report_);
      if (!std::filesystem::is_directory(path))
        self->again_ = [path](const CompileOptions& other) { return prepare_model(path, other); };
      if (options.wait) self->session();
    }
  }
  self->read_ports();
  return self;
}

std::unique_ptr<PyGraph> PyGraph::adopt(std::shared_ptr<Graph> graph, const CompileOptions& options,
                                        const SessionOptions& session_options) {
  auto self = std::make_unique<PyGraph>();
  self->path_ = graph->name;
  self->options_ = options;
  self->session_options_ = session_options;
  self->graph_ = std::move(graph);
  {
    nb::gil_scoped_release unlocked;
    prepare_graph(*self->graph_, options, &self->report_);
  }
  self->read_ports();
  return self;
}

void PyGraph::read_ports() {
  if (graph_) {
    inputs_ = input_ports(*graph_);
    outputs_ = output_ports(*graph_);
  }
  for (const auto* ports : {&inputs_, &outputs_})
    for (const Port& p : *ports) plain_ &= p.form == Form::Tensor && p.dtype != DType::String;
  name_ports();
}

// Names as interned Python strings: dictionaries then find them by address.
void PyGraph::name_ports() {
  auto intern = [](const std::vector<Port>& ports, std::vector<nb::object>& names) {
    for (const Port& p : ports) {
      PyObject* name = PyUnicode_FromStringAndSize(p.name.data(), static_cast<Py_ssize_t>(p.name.size()));
      if (!name) throw nb::python_error();
      PyUnicode_InternInPlace(&name);
      names.push_back(nb::steal(name));
    }
  };
  intern(inputs_, input_names_);
  intern(outputs_, output_names_);
}

Session& PyGraph::session() {
  std::lock_guard lock(session_mutex_);
  if (session_) return *session_;
  SessionOptions options = session_options_;
  options.warn = [](const std::string& text) {
    nb::gil_scoped_acquire locked;
    if (PyErr_WarnEx(PyExc_RuntimeWarning, text.c_str(), 1) < 0) throw nb::python_error();
  };
  session_ = make_session(graph_, options_, options, again_);
  return *session_;
}

const Graph& PyGraph::graph(const char* what) const {
  if (!graph_)
    throw Error(ErrorKind::Unsupported, fmt::format("{}: a compiled library has no {}", path_, what),
                "load the .onnx file or the IR folder it was made from");
  return *graph_;
}

int PyGraph::threads() {
  if (library_) return session_options_.threads;
  nb::gil_scoped_release unlocked;
  return session().threads();
}

std::vector<std::pair<uintptr_t, size_t>> PyGraph::constant_memory() {
  if (library_) return {};
  nb::gil_scoped_release unlocked;
  std::map<uintptr_t, size_t> found;  // tensors may share one constant
  for (const Tensor& t : session().graph().tensors)
    if (t.info.constant)
      found[reinterpret_cast<uintptr_t>(t.info.constant->bytes.data())] = t.info.constant->bytes.size();
  return {found.begin(), found.end()};
}

template <class Read>
void PyGraph::each_input(nb::handle given, const Read& read) const {
  const size_t count = inputs_.size();
  PyObject* p = given.ptr();
  // Reading an input may run Python code that changes the list or dict: each one is held, and looked for anew.
  if (PyList_Check(p) || PyTuple_Check(p)) {
    for (size_t i = 0; i < std::max<size_t>(count, 1); i++) {
      const auto found = static_cast<size_t>(PySequence_Fast_GET_SIZE(p));
      if (found != count)
        throw Error(ErrorKind::InvalidInput, fmt::format("the model has {} inputs, {} were given", count, found),
                    "its inputs are " + list_names(inputs_));
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
    PyObject* value = PyDict_GetItemWithError(p, input_names_[i].ptr());
    if (!value) {
      if (PyErr_Occurred()) throw nb::python_error();
      throw Error(ErrorKind::InvalidInput, fmt::format("input '{}' is missing", inputs_[i].name),
                  "the model's inputs are " + list_names(inputs_));
    }
    read(i, nb::borrow(value));
  }
  if (static_cast<size_t>(PyDict_Size(p)) == count) return;
  for (auto [key, value] : nb::borrow<nb::dict>(dict)) {
    const std::string name = nb::str(key).c_str();
    bool known = false;
    for (const Port& port : inputs_) known = known || port.name == name;
    if (!known)
      throw Error(ErrorKind::InvalidInput, fmt::format("the model has no input '{}'", name),
                  "its inputs are " + list_names(inputs_));
  }
}

void PyGraph::read_inputs(nb::handle given, Inputs& in) const {
  in.views.resize(inputs_.size());
  in.keep.resize(inputs_.size());
  each_input(given,
             [&](size_t i, const nb::object& value) { in.keep[i] = read_array(value, inputs_[i].name, in.views[i]); });
}

std::vector<Value> PyGraph::read_values(nb::handle given, std::vector<nb::object>& keep) const {
  std::vector<Value> values(inputs_.size());
  each_input(given, [&](size_t i, const nb::object& value) {
    TensorInfo type;
    type.dtype = inputs_[i].dtype;
    type.form = inputs_[i].form;
    values[i] = read_value(value, inputs_[i].name, type, keep);
  });
  return values;
}

nb::object PyGraph::run_values(nb::handle given) {
  std::vector<nb::object> keep;
  const std::vector<Value> in = read_values(given, keep);
  std::vector<Value> out;
  {
    nb::gil_scoped_release unlocked;
    out = library_ ? library_->run(in) : session().run(in);
  }
  nb::object result = nb::steal(PyDict_New());
  for (size_t i = 0; i < out.size(); i++)
    if (PyDict_SetItem(result.ptr(), output_names_[i].ptr(), to_python(out[i]).ptr()) < 0) throw nb::python_error();
  return result;
}

std::vector<OutputBuffer> PyGraph::run_plain(nb::handle given) {
  static thread_local Inputs spare;
  Inputs in = std::move(spare);
  read_inputs(given, in);
  std::vector<OutputBuffer> out(outputs_.size());
  {
    nb::gil_scoped_release unlocked;
    const OutputAllocator allocate = [&out](size_t i, DType dtype, const std::vector<int64_t>& dims) {
      return out[i].allocate(dtype, dims);
    };
    if (library_)
      library_->run(in.views, allocate);
    else
      session().run(in.views, allocate);
  }
  for (nb::object& o : in.keep) o.reset();
  spare = std::move(in);
  return out;
}

nb::object PyGraph::inference(nb::handle given) {
  if (!plain_) return run_values(given);
  std::vector<OutputBuffer> out = run_plain(given);
  nb::object result = nb::steal(PyDict_New());
  for (size_t i = 0; i < out.size(); i++)
    if (PyDict_SetItem(result.ptr(), output_names_[i].ptr(), out[i].to_numpy().ptr()) < 0) throw nb::python_error();
  return result;
}

nb::object PyGraph::run(nb::handle given, nb::handle tensor_type) {
  if (!plain_) unsupported("{}: run is for tensors of numbers; use inference", path_);
  const TensorExchange& exchange = exchange_of(tensor_type);
  std::vector<OutputBuffer> out = run_plain(given);
  nb::object result = nb::steal(PyList_New(static_cast<Py_ssize_t>(out.size())));
  for (size_t i = 0; i < out.size(); i++)
    PyList_SET_ITEM(result.ptr(), static_cast<Py_ssize_t>(i), out[i].to_tensor(exchange).release().ptr());
  return result;
}

nb::object PyGraph::call(const nb::args& args, const nb::kwargs& kwargs) {
  if (!args.empty() && !kwargs.empty()) invalid_input("inputs are given by position or by name, not both");
  return kwargs.empty() ? inference(args) : inference(kwargs);
}

nb::object PyGraph::dump_tensors(const std::vector<std::string>& names, nb::handle given) {
  graph("tensors inside to look at");
  std::vector<nb::object> keep;
  const std::vector<Value> in = read_values(given, keep);
  std::vector<Value> found;
  {
    nb::gil_scoped_release unlocked;
    found = session().run_for(in, names);
  }
  nb::dict result;
  for (size_t i = 0; i < names.size(); i++) result[names[i].c_str()] = to_python(found[i]);
  return result;
}

std::unique_ptr<PyGraph> PyGraph::autocast(const std::string& precision) const {
  const Graph& g = graph("graph to cast");
  auto out = std::make_unique<PyGraph>();
  out->path_ = path_;
  out->options_ = options_;
  out->session_options_ = session_options_;
  out->report_ = report_;
  {
    nb::gil_scoped_release unlocked;
    out->graph_ = std::make_shared<Graph>(ingot::autocast(g, precision));
    if (again_)
      out->again_ = [precision, make = again_](const CompileOptions& other) {
        return std::make_shared<Graph>(ingot::autocast(*make(other), precision));
      };
  }
  out->read_ports();
  return out;
}

void PyGraph::save(const std::string& folder) const {
  const Graph& g = graph("graph to save");
  nb::gil_scoped_release unlocked;
  save_ir(g, folder);
}

void PyGraph::emit(const std::string& path, const std::string& prefix) const {
  graph("graph to emit again");
  nb::gil_scoped_release unlocked;
  CompileOptions options = options_;
  options.prefix = prefix;
  emit_library(graph_, path, options);
}

std::string PyGraph::yaml() const { return to_yaml(graph("graph to print")); }

std::vector<NodeInfo> PyGraph::nodes() const {
  const Graph& g = graph("nodes to list");
  auto names = [&g](const std::vector<TensorId>& ids) {
    std::vector<std::string> out;
    out.reserve(ids.size());
    for (TensorId id : ids) out.push_back(id == kNoTensor ? "" : g.tensor(id).name);
    return out;
  };
  std::vector<NodeInfo> out;
  for (const Node& node : g.nodes) {
    NodeInfo info;
    info.name = node.name;
    info.op = node.qualified_op();
    info.inputs = names(node.inputs);
    info.outputs = names(node.outputs);
    info.origins = node.origins;
    for (const auto& [name, value] : node.attrs) info.attrs[name.c_str()] = attribute_value(value);
    out.push_back(std::move(info));
  }
  return out;
}

std::string PyGraph::repr() const {
  auto signature = [](const std::vector<Port>& ports) {
    std::string out;
    for (const Port& p : ports)
      out +=
          fmt::format("{}{}: {}{}", out.empty() ? "" : ", ", p.name, name(p.dtype), p.shape ? str(*p.shape) : "[...]");
    return out;
  };
  const std::string what = library_ ? "library" : fmt::format("{} nodes", graph_->nodes.size());
  return fmt::format("<ingot.Graph '{}': ({}) -> ({}), {}>", path_, signature(inputs_), signature(outputs_), what);
}

}  // namespace ingot::python
