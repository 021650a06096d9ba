#include "python/graph.h"

#include <nanobind/stl/string.h>

#include <filesystem>
#include <map>

#include "base/error.h"
#include "emitter/ir_folder.h"
#include "passes/autocast.h"

namespace ingot::python {
namespace {

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

std::unique_ptr<PyGraph> PyGraph::open(const std::string& path, const CompileOptions& options,
                                       const SessionOptions& session_options, bool allow_library) {
  auto self = std::make_unique<PyGraph>();
  self->path_ = path;
  self->options_ = options;
  self->session_options_ = session_options;
  StoppableCall call({});
  call([&] {
    if (is_library_file(path)) {
      if (!allow_library)
        throw Error(ErrorKind::InvalidInput, fmt::format("{}: is compiled already", path), "load it with ingot.load");
      self->library_ = std::make_unique<LibraryModel>(path, session_options);
    } else {
      self->graph_ = prepare_model(path, options, &self->report_);
      if (!std::filesystem::is_directory(path))
        self->again_ = [path](const CompileOptions& other) { return prepare_model(path, other); };
      if (options.wait) self->session();
    }
  });
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
  StoppableCall call({});
  call([&] { prepare_graph(*self->graph_, options, &self->report_); });
  self->read_ports();
  return self;
}

void PyGraph::read_ports() {
  inputs_ = NamedPorts(graph_ ? input_ports(*graph_) : library_->inputs());
  outputs_ = NamedPorts(graph_ ? output_ports(*graph_) : library_->outputs());
  plain_ = inputs_.all_numbers() && outputs_.all_numbers();
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

const Graph& PyGraph::graph_with_constants(const char* what) const {
  const Graph& g = graph(what);
  if (only_session_)
    throw Error(ErrorKind::Unsupported,
                fmt::format("{}: only the packed weights were kept, so there is no {}", path_, what),
                "compile the model once more");
  return g;
}

void PyGraph::keep_only_session() {
  if (library_) return;
  nb::gil_scoped_release unlocked;
  session();
  const std::lock_guard lock(session_mutex_);
  if (again_ || only_session_.exchange(true)) return;  // with independent dims it would be made anew
  for (Tensor& t : graph_->tensors) t.info.constant = nullptr;
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

std::vector<OutputBuffer> PyGraph::run_plain(nb::handle given, const RunLimits& limits) {
  return run_ports(inputs_, outputs_.size(), given, limits,
                   [&](const std::vector<TensorView>& views, const OutputAllocator& allocate) {
                     library_ ? library_->run(views, allocate) : session().run(views, allocate);
                   });
}

nb::object PyGraph::inference(nb::handle given, const RunLimits& limits) {
  if (plain_) {
    std::vector<OutputBuffer> out = run_plain(given, limits);
    return outputs_.as_dict(out);
  }
  std::vector<nb::object> keep;
  const std::vector<Value> in = inputs_.read_values(given, keep);
  std::vector<Value> out;
  StoppableCall call(limits);
  call([&] { out = library_ ? library_->run(in) : session().run(in); });
  return outputs_.as_dict(out);
}

nb::object PyGraph::run(nb::handle given, nb::handle tensor_type, const RunLimits& limits) {
  if (!plain_) unsupported("{}: run is for tensors of numbers; use inference", path_);
  std::vector<OutputBuffer> out = run_plain(given, limits);
  return as_tensors(out, tensor_type);
}

std::unique_ptr<State> PyGraph::bind_state(const StateNames& names) {
  nb::gil_scoped_release unlocked;
  return library_ ? library_->bind_state(names) : ingot::bind_state(session(), names);
}

nb::object PyGraph::call(const nb::args& args, const nb::kwargs& kwargs) {
  if (!args.empty() && !kwargs.empty()) invalid_input("inputs are given by position or by name, not both");
  return kwargs.empty() ? inference(args) : inference(kwargs);
}

nb::object PyGraph::dump_tensors(const std::vector<std::string>& names, nb::handle given) {
  graph("tensors inside to look at");
  std::vector<nb::object> keep;
  const std::vector<Value> in = inputs_.read_values(given, keep);
  std::vector<Value> found;
  StoppableCall call({});
  call([&] { found = session().run_for(in, names); });
  nb::dict result;
  for (size_t i = 0; i < names.size(); i++) result[names[i].c_str()] = to_python(found[i]);
  return result;
}

std::unique_ptr<PyGraph> PyGraph::autocast(const std::string& precision) const {
  const Graph& g = graph_with_constants("graph to cast");
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
  const Graph& g = graph_with_constants("graph to save");
  nb::gil_scoped_release unlocked;
  save_ir(g, folder);
}

void PyGraph::emit(const std::string& path, const std::string& prefix) const {
  graph_with_constants("graph to emit again");
  CompileOptions options = options_;
  options.prefix = prefix;
  StoppableCall call({});
  call([&] { emit_library(graph_, path, options); });
}

std::string PyGraph::yaml() const { return to_yaml(graph_with_constants("graph to print")); }

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
  return fmt::format("<ingot.Graph '{}': ({}) -> ({}), {}>", path_, signature(inputs()), signature(outputs()), what);
}

}  // namespace ingot::python
