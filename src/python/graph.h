// What Python calls a Graph: a graph that can be saved, emitted and run, or a loaded model.so that can only be run.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "compiler/compiler.h"
#include "compiler/library.h"
#include "python/ports.h"

namespace ingot::python {

struct NodeInfo {
  std::string name, op;  // op with its domain where it is not ONNX's own: "ingot.Gelu"
  std::vector<std::string> inputs, outputs, origins;
  nb::dict attrs;
};

class PyGraph {
 public:
  // Reads an .onnx file, an IR folder or a model.so, by what the path is; runs the passes unless it is IR.
  static std::unique_ptr<PyGraph> open(const std::string& path, const CompileOptions&, const SessionOptions&,
                                       bool allow_library);
  // A graph as load_onnx gives it: expanded and optimised here.
  static std::unique_ptr<PyGraph> adopt(std::shared_ptr<Graph>, const CompileOptions&, const SessionOptions&);

  const std::string& path() const { return path_; }
  bool is_library() const { return library_ != nullptr; }
  const std::vector<Port>& inputs() const { return inputs_.ports(); }
  const std::vector<Port>& outputs() const { return outputs_.ports(); }
  const FusionReport& report() const { return report_; }
  int threads();
  // Makes the session now and keeps only what it needs: the graph cannot be saved, emitted or cast any more.
  void keep_only_session();
  void use_cache(const std::string& folder) { options_.cache_dir = folder; }

  nb::object inference(nb::handle inputs, const RunLimits& = {});
  nb::object call(const nb::args&, const nb::kwargs&);
  // Inputs and results through the DLPack exchange interface of a class of tensors (python/exchange.h).
  nb::object run(nb::handle inputs, nb::handle tensor_type, const RunLimits&);
  std::unique_ptr<State> bind_state(const StateNames&);
  nb::object dump_tensors(const std::vector<std::string>& names, nb::handle inputs);
  // A new graph in a lower precision (passes/autocast.h).
  std::unique_ptr<PyGraph> autocast(const std::string& precision) const;
  void save(const std::string& folder) const;
  void emit(const std::string& path, const std::string& prefix) const;
  std::string yaml() const;
  std::vector<NodeInfo> nodes() const;
  // Address and bytes of every constant that runs read: where the caller put it, or packed. Of a library, none.
  std::vector<std::pair<uintptr_t, size_t>> constant_memory();
  std::string repr() const;

 private:
  void read_ports();
  Session& session();
  const Graph& graph(const char* what) const;
  const Graph& graph_with_constants(const char* what) const;
  // For graphs whose inputs and outputs are tensors of numbers.
  std::vector<OutputBuffer> run_plain(nb::handle given, const RunLimits&);

  std::string path_;
  CompileOptions options_;
  SessionOptions session_options_;
  FusionReport report_;
  std::shared_ptr<Graph> graph_;
  GraphMaker again_;  // the same graph with other options, where there is a file to make it from
  std::unique_ptr<LibraryModel> library_;
  NamedPorts inputs_, outputs_;
  bool plain_ = true;         // all inputs and outputs are tensors of numbers
  std::mutex session_mutex_;  // guards the making of session_
  std::unique_ptr<Session> session_;
  std::atomic<bool> only_session_{false};  // graph_ has no constants
};

}  // namespace ingot::python
