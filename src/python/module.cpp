// The Python module ingot._ingot: thin bindings over src/compiler. The package python/ingot re-exports them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"
#include "base/target.h"
#include "cli/peak.h"
#include "cli/read_bandwidth.h"
#include "cli/version.h"
#include "compiler/kernel_store.h"
#include "python/arrays.h"
#include "python/builder.h"
#include "python/cache.h"
#include "python/graph.h"
#include "python/options.h"
#include "python/quantize.h"
#include "python/state.h"
#include "python/weights.h"

namespace ingot::python {
namespace {

// The exception classes live in python/ingot/errors.py, where they can inherit and carry a hint.
const char* class_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::InvalidModel:
      return "InvalidModelError";
    case ErrorKind::Unsupported:
      return "UnsupportedError";
    case ErrorKind::InvalidInput:
      return "InvalidInputError";
    case ErrorKind::Io:
      return "IoError";
    case ErrorKind::Resource:
      return "ResourceError";
    case ErrorKind::Cancelled:
      return "CancelledError";
    case ErrorKind::Deadline:
      return "DeadlineError";
    case ErrorKind::Internal:
      break;
  }
  return "InternalError";
}

// Messages may quote bytes of a broken file: what is no UTF-8 is shown as \xNN.
nb::object text_of(const std::string& text) {
  return nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace"));
}

void raise(const Error& e) {
  nb::object type = nb::module_::import_("ingot.errors").attr(class_of(e.kind()));
  nb::object error = type(text_of(e.message()), text_of(e.hint()));
  PyErr_SetObject(type.ptr(), error.ptr());
}

void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& e) {
    raise(e);
  } catch (const std::bad_alloc&) {
    raise(out_of_memory());
  }
}

nb::object shape_of(const Port& port) {
  if (!port.shape) return nb::none();
  nb::list dims;
  for (const Dim& d : *port.shape) {
    if (d.is_const())
      dims.append(d.value());
    else
      dims.append(d.str());
  }
  return nb::tuple(dims);
}

std::unique_ptr<PyGraph> open(nb::handle path, std::map<std::string, bool> patterns, int opt_level,
                              const std::string& march, int threads, std::map<std::string, std::vector<int64_t>> shapes,
                              bool wait, bool allow_library, bool independent_dims,
                              const std::map<std::string, double>& limits) {
  auto [options, session] =
      read_options(std::move(patterns), opt_level, march, threads, std::move(shapes), wait, limits);
  options.independent_dims = independent_dims;
  return PyGraph::open(file_path(path), options, session, allow_library);
}

std::string repr_of(const Port& p) {
  return fmt::format("Port(name='{}', dtype='{}', shape={})", p.name, numpy_name(p.dtype),
                     nb::repr(shape_of(p)).c_str());
}

}  // namespace
}  // namespace ingot::python

NB_MODULE(_ingot, m) {
  using namespace ingot;
  using namespace ingot::python;
  using nb::literals::operator""_a;
  import_numpy();
  nb::set_leak_warnings(false);  // what torch.compile made lives until the process ends
  nb::register_exception_translator(translate);
  m.doc() = "The compiled part of Ingot; use the names the package `ingot` exports.";
  m.attr("VERSION") = kVersion;

  add_cancel(m);
  nb::class_<Port>(m, "Port", "An input or output of a model.")
      .def_prop_ro(
          "form", [](const Port& p) { return std::string(ingot::name(p.form)); },
          "tensor, sequence, optional or optional_sequence")
      .def_ro("name", &Port::name)
      .def_prop_ro(
          "dtype", [](const Port& p) { return numpy_name(p.dtype); }, "numpy's name of the element type.")
      .def_prop_ro("shape", shape_of, nb::sig("def shape(self) -> tuple[int | str, ...] | None"),
                   "Numbers, and names for dims that are not fixed; None when even the rank is not known.")
      .def("__repr__", repr_of);

  nb::class_<NodeInfo>(m, "Node", "A node of the graph, as it is now.")
      .def_ro("name", &NodeInfo::name)
      .def_ro("op", &NodeInfo::op, "The operator; those that are not ONNX's own have their domain in front.")
      .def_ro("inputs", &NodeInfo::inputs, "Names of tensors; '' where an optional operand is absent.")
      .def_ro("outputs", &NodeInfo::outputs)
      .def_ro("attrs", &NodeInfo::attrs, nb::for_getter(nb::sig("def attrs(self) -> dict[str, typing.Any]")))
      .def_ro("origins", &NodeInfo::origins, "Names of the ONNX nodes it came from.")
      .def("__repr__", [](const NodeInfo& n) { return fmt::format("<ingot.Node {} '{}'>", n.op, n.name); });

  nb::class_<FusionReport::Entry>(m, "FusionEntry", "What one fusion did at one node.")
      .def_ro("fusion", &FusionReport::Entry::fusion)
      .def_ro("node", &FusionReport::Entry::node)
      .def_ro("outcome", &FusionReport::Entry::outcome, "'matched', or what stopped it.")
      .def("__repr__", [](const FusionReport::Entry& e) {
        return fmt::format("<ingot.FusionEntry {} at {}: {}>", e.fusion, e.node, e.outcome);
      });

  nb::class_<PyGraph> graph(m, "Graph", "A model: it can be run, saved as Engine IR, and emitted as a library.");
  graph
      .def(
          "inference",
          [](PyGraph& g, nb::handle inputs, std::optional<double> timeout, const PyCancel* cancel) {
            return g.inference(inputs, {timeout, cancel});
          },
          "inputs"_a, nb::kw_only(), "timeout"_a = nb::none(), "cancel"_a = nb::none(),
          nb::sig("def inference(self, inputs: collections.abc.Sequence[typing.Any] | "
                  "collections.abc.Mapping[str, typing.Any], *, timeout: float | None = None, "
                  "cancel: Cancel | None = None) -> dict[str, typing.Any]"),
          "Runs the model. inputs: a list or tuple in the order of `inputs`, or a dict by name; numpy arrays, torch\n"
          "tensors or anything with __dlpack__. Returns numpy arrays by name, in the order of `outputs`.\n"
          "DeadlineError after timeout seconds, CancelledError once cancel.cancel() is called, from any thread.")
      .def("__call__", &PyGraph::call,
           nb::sig("def __call__(self, *args: typing.Any, **kwargs: typing.Any) -> dict[str, typing.Any]"),
           "inference with the inputs as arguments, by position or by name.")
      .def(
          "run",
          [](PyGraph& g, nb::handle inputs, nb::handle tensor_type, std::optional<double> timeout,
             const PyCancel* cancel) { return g.run(inputs, tensor_type, {timeout, cancel}); },
          "inputs"_a, "tensor_type"_a, nb::kw_only(), "timeout"_a = nb::none(), "cancel"_a = nb::none(),
          nb::sig("def run(self, inputs: collections.abc.Sequence[typing.Any], tensor_type: type[typing.Any], *, "
                  "timeout: float | None = None, cancel: Cancel | None = None) -> list[typing.Any]"),
          "inference for tensors of one library, with the least overhead: tensor_type (torch.Tensor) is a class with\n"
          "DLPack's C exchange interface. Inputs in the order of `inputs`; contiguous ones are used where they lie.\n"
          "Results in the order of `outputs`, in memory of their own that the tensors take over.")
      .def("dump_tensors", &PyGraph::dump_tensors, "names"_a, "inputs"_a,
           nb::sig("def dump_tensors(self, names: collections.abc.Sequence[str], inputs: "
                   "collections.abc.Sequence[typing.Any] | "
                   "collections.abc.Mapping[str, typing.Any]) -> dict[str, typing.Any]"),
           "Runs the model and returns the values of any of its tensors, also those inside.")
      .def("autocast", &PyGraph::autocast, "precision"_a, nb::sig("def autocast(self, precision: str) -> Graph"),
           "The same model in a lower precision, as a new graph. bf16, fp16, int8-weights, int4-weights: weights are\n"
           "stored in fewer bits and computed with in fp32. int8: products of 8-bit integers, the inputs of each\n"
           "quantized as they come.")
      .def(
          "save", [](const PyGraph& g, nb::handle folder) { g.save(file_path(folder)); }, "folder"_a,
          nb::sig("def save(self, folder: str | os.PathLike[str]) -> None"),
          "Writes Engine IR: folder/graph.yaml and folder/weights.bin.")
      .def(
          "emit", [](const PyGraph& g, nb::handle path, const std::string& prefix) { g.emit(file_path(path), prefix); },
          "path"_a, "prefix"_a = "", nb::sig("def emit(self, path: str | os.PathLike[str], prefix: str = '') -> None"),
          "Writes a native library with the C interface of ingot/ingot.h. With a prefix p it also exports p_create "
          "and\n"
          "the others, for programs that are linked with several models.")
      .def(
          "use_cache", [](PyGraph& g, nb::handle folder) { g.use_cache(file_path(folder)); }, "folder"_a,
          nb::sig("def use_cache(self, folder: str | os.PathLike[str]) -> None"),
          "The folder of the disk cache, if not the usual one, from now on.")
      .def("keep_only_session", &PyGraph::keep_only_session,
           "Makes the graph ready to run and forgets all else: it cannot be saved, emitted or cast any more. Weights\n"
           "that were packed, or folded into others, are then held in one form.")
      .def_prop_ro("path", &PyGraph::path, "What the graph was read from.")
      .def_prop_ro("is_library", &PyGraph::is_library, "True for a loaded model.so, which can only be run.")
      .def_prop_ro("inputs", &PyGraph::inputs)
      .def_prop_ro("outputs", &PyGraph::outputs)
      .def_prop_ro("nodes", &PyGraph::nodes)
      .def_prop_ro("yaml", &PyGraph::yaml, "The graph as Engine IR text, without the weights.")
      .def_prop_ro(
          "report", [](const PyGraph& g) { return g.report().entries; }, "What each fusion did and did not do.")
      .def_prop_ro("threads", &PyGraph::threads, "Threads a run may use (0: the library's own default).")
      .def("constant_memory", &PyGraph::constant_memory,
           "Address and bytes of every constant that runs read; those that were not packed lie where they were given.")
      .def("__repr__", &PyGraph::repr);
  add_state(m, graph);

  m.def("open_model", &open, "path"_a, "patterns"_a, "opt_level"_a, "march"_a, "threads"_a, "shapes"_a, "wait"_a,
        "allow_library"_a, "independent_dims"_a = false, "limits"_a = std::map<std::string, double>(),
        nb::sig("def open_model(path: str | bytes | os.PathLike[typing.Any], patterns: collections.abc.Mapping[str, "
                "bool], opt_level: int, "
                "march: str, threads: int, shapes: collections.abc.Mapping[str, collections.abc.Sequence[int]], "
                "wait: bool, allow_library: bool, independent_dims: bool = False, limits: collections.abc.Mapping[str, "
                "float] = ...) -> Graph"));
  add_builder(m);
  add_quantizer(m);
  add_cache(m);
  nb::module_::import_("atexit").attr("register")(
      nb::cpp_function([] { end_background_compiles(); }, nb::call_guard<nb::gil_scoped_release>()));
  add_weights(m);
  m.def(
      "targets",
      [] {
        std::map<std::string, bool> out;
        for (const Target& t : targets()) out.emplace(t.name, runs_here(t));
        return out;
      },
      "The targets there are, and which of them this CPU runs.");
  m.def("cpu_target", [] { return std::string(cpu_target().name); }, "The target that march native stands for.");
  m.def("fma_unit", [] { return fp32_unit(cpu_target()); }, "What fma_peak measures, in words.");
  m.def("byte_unit", [] { return byte_unit(cpu_target()); }, "What byte_peak measures, in words.");
  m.def(
      "fma_peak", [](double seconds) { return fp32_peak(cpu_target(), seconds); }, "seconds"_a = 0.2,
      nb::call_guard<nb::gil_scoped_release>(), "fp32 multiply-adds per second this core does now, in units of 1e9.");
  m.def(
      "byte_peak", [](double seconds) { return byte_peak(cpu_target(), seconds); }, "seconds"_a = 0.2,
      nb::call_guard<nb::gil_scoped_release>(), "8-bit multiply-adds per second this core does now, in units of 1e9.");
  m.def("read_bandwidth", &read_bandwidth, "seconds"_a = 0.2, nb::call_guard<nb::gil_scoped_release>(),
        "Bytes per second this core reads from memory now, in units of 1e9.");
}
