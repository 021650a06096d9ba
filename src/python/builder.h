// A graph that Python writes node by node, in ONNX's vocabulary at its newest version: what a translator from another
// framework makes in place of an ONNX file. Constants stay in the caller's memory.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/unique_names.h"
#include "python/graph.h"

namespace ingot::python {

class GraphBuilder {
 public:
  explicit GraphBuilder(const std::string& name) { graph_.name = name; }

  // dims: ints, and text for what is not fixed: a symbol, or a sum of products of symbols ("2*seq + 1").
  void input(const std::string& name, const std::string& dtype, nb::handle dims);
  // An array or tensor; contiguous memory is used where it lies and kept alive.
  void constant(const std::string& name, nb::handle array);
  // Returns the name the node got: the wished one, or it with a number.
  std::string node(const std::string& op, const std::vector<std::string>& inputs,
                   const std::vector<std::string>& outputs, const nb::dict& attrs, const std::string& domain,
                   const std::string& name);
  void output(const std::string& name);

  std::unique_ptr<PyGraph> graph(const CompileOptions&, const SessionOptions&) const;
  void write(const std::string& path, bool external_data, std::map<std::string, int64_t> opsets) const;

  size_t node_count() const { return graph_.nodes.size(); }
  int64_t constant_bytes() const;

 private:
  TensorId define(const std::string& name, TensorInfo, const char* what);
  TensorId resolve(const std::string& name) const;
  Graph finished() const;

  Graph graph_;
  std::unordered_map<std::string, TensorId> names_;
  UniqueNames node_names_;
};

// Binds GraphBuilder.
void add_builder(nb::module_&);

}  // namespace ingot::python
