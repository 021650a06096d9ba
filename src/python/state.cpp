#include "python/state.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"

namespace ingot::python {
namespace {

NamedPorts some_of(const std::vector<Port>& ports, const std::vector<size_t>& which) {
  std::vector<Port> out;
  for (size_t i : which) out.push_back(ports[i]);
  return NamedPorts(std::move(out));
}

}  // namespace

PyState::PyState(PyGraph& graph, const std::map<std::string, std::string>& pairs)
    : state_(graph.bind_state({pairs.begin(), pairs.end()})),
      inputs_(some_of(graph.inputs(), state_->inputs())),
      outputs_(some_of(graph.outputs(), state_->outputs())) {
  std::vector<size_t> kept;
  for (const Tied& t : state_->pairs()) kept.push_back(t.input);
  kept_ = some_of(graph.inputs(), kept);
}

std::vector<std::string> PyState::keys() const {
  std::vector<std::string> out;
  for (const Port& p : kept_.ports()) out.push_back(p.name);
  return out;
}

size_t PyState::pair_of(const std::string& name) const {
  for (size_t i = 0; i < kept_.size(); i++)
    if (kept_.ports()[i].name == name) return i;
  throw Error(ErrorKind::InvalidInput, fmt::format("the state has no tensor '{}'", name),
              fmt::format("its tensors are {}", fmt::join(keys(), ", ")));
}

std::vector<OutputBuffer> PyState::run_plain(nb::handle given, const RunLimits& limits) {
  return run_ports(
      inputs_, outputs_.size(), given, limits,
      [&](const std::vector<TensorView>& views, const OutputAllocator& allocate) { state_->run(views, allocate); });
}

nb::object PyState::inference(nb::handle given, const RunLimits& limits) {
  std::vector<OutputBuffer> out = run_plain(given, limits);
  return outputs_.as_dict(out);
}

nb::object PyState::call(const nb::args& args, const nb::kwargs& kwargs) {
  if (!args.empty() && !kwargs.empty()) invalid_input("inputs are given by position or by name, not both");
  return kwargs.empty() ? inference(args) : inference(kwargs);
}

nb::object PyState::run(nb::handle given, nb::handle tensor_type, const RunLimits& limits) {
  std::vector<OutputBuffer> out = run_plain(given, limits);
  return as_tensors(out, tensor_type);
}

void PyState::reset() {
  nb::gil_scoped_release unlocked;
  state_->reset();
}

nb::object PyState::length() {
  int64_t length = 0;
  {
    nb::gil_scoped_release unlocked;
    length = state_->length();
  }
  return length < 0 ? nb::object(nb::none()) : nb::object(nb::int_(length));
}

nb::object PyState::get(const std::string& name) {
  const size_t pair = pair_of(name);
  OutputBuffer out;
  {
    nb::gil_scoped_release unlocked;
    state_->get(pair, [&](size_t, DType dtype, const std::vector<int64_t>& dims) { return out.allocate(dtype, dims); });
  }
  return out.to_numpy();
}

void PyState::set(const std::string& name, nb::handle value) {
  const size_t pair = pair_of(name);
  TensorView view;
  const nb::object keep = read_array(value, name, view);
  nb::gil_scoped_release unlocked;
  state_->set(pair, view);
}

std::string PyState::repr() {
  return fmt::format("<ingot.State of {} tensors, length {}>", kept_.size(), nb::repr(length()).c_str());
}

void add_state(nb::module_& m, nb::class_<PyGraph>& graph) {
  using nb::literals::operator""_a;
  nb::class_<PyState>(m, "State",
                      "What a model carries from one run to the next: outputs that become inputs of the next run and\n"
                      "stay inside meanwhile. Made by Graph.bind_state. state[name] reads the tensor of an input as\n"
                      "numpy array and sets it; dict(state) has all.")
      .def(
          "inference",
          [](PyState& g, nb::handle inputs, std::optional<double> timeout, const PyCancel* cancel) {
            return g.inference(inputs, {timeout, cancel});
          },
          "inputs"_a, nb::kw_only(), "timeout"_a = nb::none(), "cancel"_a = nb::none(),
          nb::sig("def inference(self, inputs: collections.abc.Sequence[typing.Any] | "
                  "collections.abc.Mapping[str, typing.Any], *, timeout: float | None = None, "
                  "cancel: Cancel | None = None) -> dict[str, typing.Any]"),
          "As Graph.inference, with the inputs and outputs that are not in the state.")
      .def("__call__", &PyState::call,
           nb::sig("def __call__(self, *args: typing.Any, **kwargs: typing.Any) -> dict[str, typing.Any]"),
           "inference with the inputs as arguments, by position or by name.")
      .def(
          "run",
          [](PyState& g, nb::handle inputs, nb::handle tensor_type, std::optional<double> timeout,
             const PyCancel* cancel) { return g.run(inputs, tensor_type, {timeout, cancel}); },
          "inputs"_a, "tensor_type"_a, nb::kw_only(), "timeout"_a = nb::none(), "cancel"_a = nb::none(),
          nb::sig("def run(self, inputs: collections.abc.Sequence[typing.Any], tensor_type: type[typing.Any], *, "
                  "timeout: float | None = None, cancel: Cancel | None = None) -> list[typing.Any]"),
          "As Graph.run, with the inputs and outputs that are not in the state.")
      .def("reset", &PyState::reset,
           "As it was at first: of length 0 where it grows, zeros elsewhere. Its memory is kept.")
      .def("keys", &PyState::keys, "Names of the inputs that the state feeds.")
      .def("__getitem__", &PyState::get, "name"_a, nb::sig("def __getitem__(self, name: str) -> typing.Any"))
      .def("__setitem__", &PyState::set, "name"_a, "value"_a,
           nb::sig("def __setitem__(self, name: str, value: typing.Any) -> None"))
      .def_prop_ro("length", &PyState::length, nb::for_getter(nb::sig("def length(self) -> int | None")),
                   "Of what grows, along the axis on which it does; None where nothing grows.")
      .def_prop_ro("inputs", &PyState::inputs, "Inputs that a run takes.")
      .def_prop_ro("outputs", &PyState::outputs, "Outputs that a run gives.")
      .def("__repr__", &PyState::repr);
  graph.def(
      "bind_state",
      [](PyGraph& g, const std::map<std::string, std::string>& pairs) { return std::make_unique<PyState>(g, pairs); },
      "pairs"_a = std::map<std::string, std::string>{}, nb::keep_alive<0, 1>(),
      nb::sig("def bind_state(self, pairs: collections.abc.Mapping[str, str] = {}) -> State"),
      "A new state: pairs of an input and the output that becomes it in the next run, {'past.0.key': "
      "'present.0.key'}.\n"
      "It feeds these inputs and keeps these outputs, without a copy where the model lets it. Without pairs, those "
      "that\n"
      "the model shows by names (past..., present...) or by a Concat of an input and something new.");
}

}  // namespace ingot::python
