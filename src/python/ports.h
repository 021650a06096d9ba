// Inputs and outputs of a model as Python meets them: by position or by name.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "compiler/library.h"
#include "python/arrays.h"
#include "python/stop.h"

namespace ingot::python {

class NamedPorts {
 public:
  NamedPorts() = default;
  explicit NamedPorts(std::vector<Port>);
  const std::vector<Port>& ports() const { return ports_; }
  size_t size() const { return ports_.size(); }
  bool all_numbers() const;  // tensors of numbers
  // Calls read(i, object) for each port: `given` is a list or tuple of all, or a dict by name.
  void each(nb::handle given, const std::function<void(size_t, const nb::object&)>& read) const;
  std::vector<Value> read_values(nb::handle given, std::vector<nb::object>& keep) const;
  // numpy arrays by name.
  nb::object as_dict(std::vector<OutputBuffer>&) const;
  nb::object as_dict(const std::vector<Value>&) const;

 private:
  std::vector<Port> ports_;
  std::vector<nb::object> names_;  // interned: dictionaries then find them by address
};

using RunViews = std::function<void(const std::vector<TensorView>&, const OutputAllocator&)>;
// Reads the inputs, which are tensors of numbers, and runs without the GIL.
std::vector<OutputBuffer> run_ports(const NamedPorts& inputs, size_t outputs, nb::handle given, const RunLimits&,
                                    const RunViews& run);
// Tensors of another library in order, through its DLPack exchange interface (python/exchange.h).
nb::object as_tensors(std::vector<OutputBuffer>&, nb::handle tensor_type);

}  // namespace ingot::python
