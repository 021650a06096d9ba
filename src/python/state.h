// What Python calls a State: outputs of a model that become inputs of its next run (runtime/state.h).
#pragma once
#include "python/graph.h"

namespace ingot::python {

class PyState {
 public:
  PyState(PyGraph&, const std::map<std::string, std::string>& pairs);

  const std::vector<Port>& inputs() const { return inputs_.ports(); }
  const std::vector<Port>& outputs() const { return outputs_.ports(); }
  std::vector<std::string> keys() const;
  nb::object inference(nb::handle inputs, const RunLimits& = {});
  nb::object call(const nb::args&, const nb::kwargs&);
  nb::object run(nb::handle inputs, nb::handle tensor_type, const RunLimits&);
  void reset();
  nb::object length();  // None where nothing grows
  nb::object get(const std::string& name);
  void set(const std::string& name, nb::handle value);
  std::string repr();

 private:
  size_t pair_of(const std::string& name) const;
  std::vector<OutputBuffer> run_plain(nb::handle inputs, const RunLimits&);

  std::unique_ptr<State> state_;
  NamedPorts inputs_, outputs_, kept_;
};

void add_state(nb::module_&, nb::class_<PyGraph>&);

}  // namespace ingot::python
