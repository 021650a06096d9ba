#include "python/builder.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"
#include "base/utf8.h"
#include "ir/dim.h"
#include "loader/onnx_constant.h"
#include "python/options.h"
#include "writer/onnx_graph.h"
#include "writer/onnx_writer.h"

namespace ingot::python {
namespace {

Dim read_dim(nb::handle dim) {
  int64_t number = 0;
  if (nb::try_cast(dim, number)) {
    if (number < 0) invalid_input("a dim is at least 0, not {}", number);
    return number;
  }
  std::string text;
  if (!nb::try_cast(dim, text))
    invalid_input("a dim is a number or a text, not a {}", nb::type_name(dim.type()).c_str());
  auto parsed = parse_dim(text);
  if (!parsed)
    throw Error(ErrorKind::InvalidInput, fmt::format("'{}' is not a dim", text),
                "a dim is a name such as batch, or a sum such as 2*batch + 1");
  return *parsed;
}

template <class T>
std::optional<Attribute> read_list(nb::handle value) {
  std::vector<T> items;
  if (!nb::try_cast(value, items)) return std::nullopt;
  return Attribute(std::move(items));
}

Attribute read_attribute(const std::string& name, nb::handle value) {
  if (PyBool_Check(value.ptr()) || PyLong_Check(value.ptr())) return nb::cast<int64_t>(value);
  if (PyFloat_Check(value.ptr())) return static_cast<float>(nb::cast<double>(value));
  if (PyUnicode_Check(value.ptr())) return nb::cast<std::string>(value);
  if (PyList_Check(value.ptr()) || PyTuple_Check(value.ptr())) {
    if (auto ints = read_list<int64_t>(value)) return *ints;
    if (auto floats = read_list<float>(value)) return *floats;
    if (auto strings = read_list<std::string>(value)) return *strings;
    invalid_input("attribute '{}' is a list of neither ints, floats nor strings", name);
  }
  return read_constant(value, name);
}

}  // namespace

TensorId GraphBuilder::define(const std::string& name, TensorInfo info, const char* what) {
  if (name.empty()) invalid_input("{} has no name", what);
  if (!is_utf8(name)) invalid_input("{} has a name that is not UTF-8", what);
  if (names_.contains(name)) invalid_input("{} '{}' has the name of another tensor", what, name);
  const TensorId id = graph_.add_tensor(name, std::move(info));
  names_.emplace(name, id);
  return id;
}

TensorId GraphBuilder::resolve(const std::string& name) const {
  auto it = names_.find(name);
  if (it == names_.end()) invalid_input("tensor '{}' is not defined by any input, constant or node", name);
  return it->second;
}

void GraphBuilder::input(const std::string& name, const std::string& dtype, nb::handle dims) try {
  TensorInfo info;
  info.dtype = dtype_of_name(dtype);
  if (info.dtype == DType::Undefined) invalid_input("there is no element type '{}'", dtype);
  Shape shape;
  for (nb::handle d : dims) shape.push_back(read_dim(d));
  info.shape = std::move(shape);
  graph_.inputs.push_back(define(name, std::move(info), "input"));
} catch (const Error& e) {
  throw e.at(fmt::format("input '{}'", name));
}

void GraphBuilder::constant(const std::string& name, nb::handle array) {
  ConstantPtr c = read_constant(array, name);
  define(name, {c->dtype, to_shape(c->dims), std::nullopt, c}, "constant");
}

std::string GraphBuilder::node(const std::string& op, const std::vector<std::string>& inputs,
                               const std::vector<std::string>& outputs, const nb::dict& attrs,
                               const std::string& domain, const std::string& name) try {
  if (op.empty()) invalid_input("has no operator");
  Node node;
  node.op = op;
  node.domain = domain;
  for (const auto& i : inputs) node.inputs.push_back(i.empty() ? kNoTensor : resolve(i));
  while (!node.inputs.empty() && node.inputs.back() == kNoTensor) node.inputs.pop_back();
  for (auto [key, value] : attrs) {
    const std::string attr = nb::cast<std::string>(key);
    node.attrs.emplace(attr, read_attribute(attr, value));
  }
  for (const auto& o : outputs) node.outputs.push_back(o.empty() ? kNoTensor : define(o, {}, "result"));
  while (!node.outputs.empty() && node.outputs.back() == kNoTensor) node.outputs.pop_back();
  if (node.outputs.empty()) invalid_input("has no results");
  const std::string wish = name.empty() ? outputs.front() : name;
  node.name = node_names_.make(wish.empty() ? op : wish);
  node.origins = {name.empty() ? node.name : name};
  graph_.nodes.push_back(std::move(node));
  return graph_.nodes.back().name;
} catch (const Error& e) {
  throw e.at(fmt::format("node '{}' ({})", name.empty() && !outputs.empty() ? outputs.front() : name, op));
}

void GraphBuilder::output(const std::string& name) {
  const TensorId id = resolve(name);
  if (std::find(graph_.outputs.begin(), graph_.outputs.end(), id) != graph_.outputs.end())
    invalid_input("output '{}' is listed twice", name);
  graph_.outputs.push_back(id);
}

int64_t GraphBuilder::constant_bytes() const {
  int64_t total = 0;
  for (const Tensor& t : graph_.tensors)
    if (t.info.constant) total += static_cast<int64_t>(t.info.constant->bytes.size());
  return total;
}

Graph GraphBuilder::finished() const {
  if (graph_.outputs.empty()) invalid_input("graph '{}' has no outputs", graph_.name);
  Graph copy = graph_;
  verify(copy);
  remove_dead(copy);
  return copy;
}

std::unique_ptr<PyGraph> GraphBuilder::graph(const CompileOptions& options, const SessionOptions& session) const {
  return PyGraph::adopt(std::make_shared<Graph>(finished()), options, session);
}

void GraphBuilder::write(const std::string& path, bool external_data, std::map<std::string, int64_t> opsets) const {
  Graph copy = finished();
  nb::gil_scoped_release unlocked;
  infer_types(copy);
  write_onnx(copy, path, {.opsets = std::move(opsets), .external_data = external_data});
}

void add_builder(nb::module_& m) {
  using nb::literals::operator""_a;
  nb::class_<GraphBuilder>(m, "GraphBuilder",
                           "A graph written node by node, in ONNX's vocabulary at its newest version.\n"
                           "Tensors go by name; constants stay in the memory of the arrays given.")
      .def(nb::init<const std::string&>(), "name"_a = "graph")
      .def("input", &GraphBuilder::input, "name"_a, "dtype"_a, "dims"_a,
           nb::sig("def input(self, name: str, dtype: str, dims: collections.abc.Sequence[int | str]) -> None"),
           "dtype is numpy's name of the type; a dim is a number, a symbol, or a sum of products: '2*batch + 1'.")
      .def("constant", &GraphBuilder::constant, "name"_a, "array"_a,
           nb::sig("def constant(self, name: str, array: typing.Any) -> None"),
           "A numpy array, a torch tensor or anything with __dlpack__. Contiguous memory is used where it lies.")
      .def("node", &GraphBuilder::node, "op"_a, "inputs"_a, "outputs"_a, "attrs"_a = nb::dict(), "domain"_a = "",
           "name"_a = "",
           nb::sig("def node(self, op: str, inputs: collections.abc.Sequence[str], outputs: "
                   "collections.abc.Sequence[str], attrs: dict[str, typing.Any] = ..., domain: str = '', "
                   "name: str = '') -> str"),
           "Adds a node whose inputs exist already; '' is an operand or result that is absent. Returns its name: the\n"
           "one wished for, with a number after it if that is taken.")
      .def("output", &GraphBuilder::output, "name"_a, "Makes a tensor a result of the graph.")
      .def(
          "graph",
          [](const GraphBuilder& b, std::map<std::string, bool> patterns, int opt_level, const std::string& march,
             int threads, std::map<std::string, std::vector<int64_t>> shapes, bool wait,
             const std::map<std::string, double>& limits) {
            const auto [options, session] =
                read_options(std::move(patterns), opt_level, march, threads, std::move(shapes), wait, limits);
            return b.graph(options, session);
          },
          "patterns"_a = std::map<std::string, bool>(), "opt_level"_a = 3, "march"_a = "native", "threads"_a = 0,
          "shapes"_a = std::map<std::string, std::vector<int64_t>>(), "wait"_a = false,
          "limits"_a = std::map<std::string, double>(),
          nb::sig("def graph(self, patterns: collections.abc.Mapping[str, bool] = ..., opt_level: int = 3, march: str "
                  "= 'native', threads: int = 0, shapes: collections.abc.Mapping[str, "
                  "collections.abc.Sequence[int]] = ..., wait: bool = False, limits: collections.abc.Mapping[str, "
                  "float] = ...) -> "
                  "Graph"),
          "The optimised model, as ingot.compile gives it; the options are the same.")
      .def(
          "write",
          [](const GraphBuilder& b, nb::handle path, bool external_data, std::map<std::string, int64_t> opsets) {
            b.write(file_path(path), external_data, std::move(opsets));
          },
          "path"_a, "external_data"_a = false, "opsets"_a = std::map<std::string, int64_t>(),
          nb::sig("def write(self, path: str | os.PathLike[str], external_data: bool = False, opsets: "
                  "collections.abc.Mapping[str, int] = ...) -> None"),
          "Writes the graph as an ONNX file, not optimised; opsets may ask for newer ones than it needs.")
      .def_prop_ro("node_count", &GraphBuilder::node_count)
      .def_prop_ro("constant_bytes", &GraphBuilder::constant_bytes, "Bytes of all constants.");
}

}  // namespace ingot::python
