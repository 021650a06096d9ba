#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/stop.h"
#include "base/unique_names.h"
#include "compiler/compiler.h"
#include "expansions/expand.h"
#include "ir/folder.h"
#include "loader/onnx_loader.h"
#include "loader/schema.h"
#include "passes/passes.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {

void note_operators(const Graph& graph, FusionReport* report) {
  if (!report) return;
  for (const Node& n : graph.nodes) report->operators.push_back(n.qualified_op());
}

int64_t count_nodes(const Graph& graph) {
  auto total = static_cast<int64_t>(graph.nodes.size());
  for (const Node& n : graph.nodes)
    for (const auto& [attr, value] : n.attrs)
      if (const auto* body = std::get_if<GraphPtr>(&value); body && *body) total += count_nodes(**body);
  return total;
}

void check_nodes(const Graph& graph, const Limits& limits) {
  if (const int64_t count = count_nodes(graph); static_cast<double>(count) > limits.nodes)
    throw Error(ErrorKind::InvalidModel, fmt::format("the model has {} nodes, more than {}", count, limits.nodes),
                "the limit nodes allows more");
}

}  // namespace

void untie_dims(Graph& g) {
  UniqueNames names;
  auto each_symbol = [&](auto visit) {
    for (TensorId t : g.inputs)
      if (std::optional<Shape>& shape = g.info(t).shape)
        for (Dim& dim : *shape)
          if (!dim.is_const()) visit(dim);
  };
  each_symbol([&](const Dim& dim) { names.take(dim.str()); });
  std::set<std::string> seen;
  each_symbol([&](Dim& dim) {
    if (!seen.insert(dim.str()).second) dim = Dim::symbol(names.make(dim.str()));
  });
}

void fix_shapes(Graph& g, const std::map<std::string, std::vector<int64_t>>& shapes) {
  std::map<std::string, int64_t> bound;
  for (const auto& [name, dims] : shapes) {
    const TensorId t = g.find_tensor(name);
    if (std::find(g.inputs.begin(), g.inputs.end(), t) == g.inputs.end() || t == kNoTensor) {
      std::string known;
      for (TensorId i : g.inputs) known += (known.empty() ? "" : ", ") + g.tensor(i).name;
      throw Error(ErrorKind::InvalidInput, "shapes: the model has no input '" + name + "'", "its inputs are: " + known);
    }
    TensorInfo& info = g.info(t);
    if (!info.shape) info.shape = Shape(dims.size(), Dim(0));
    if (info.shape->size() != dims.size())
      invalid_input("shapes: input '{}' has rank {}, not {}", name, info.shape->size(), dims.size());
    for (size_t d = 0; d < dims.size(); d++) {
      Dim& dim = (*info.shape)[d];
      if (dims[d] == -1) continue;
      if (dims[d] < 0) invalid_input("shapes: input '{}' cannot have size {}", name, dims[d]);
      if (dim.is_const() && dim.value() != dims[d] && g.info(t).shape)
        if (dim.value() != 0) invalid_input("shapes: dim {} of input '{}' is {}, not {}", d, name, dim.str(), dims[d]);
      if (!dim.is_const()) bound[dim.str()] = dims[d];
      dim = dims[d];
    }
  }
  for (TensorId t : g.inputs)
    if (std::optional<Shape>& shape = g.info(t).shape)
      for (Dim& dim : *shape)
        if (auto it = bound.find(dim.str()); it != bound.end()) dim = it->second;
}

std::shared_ptr<Graph> load_model(const std::string& path, const CompileOptions& options) {
  std::error_code error;
  if (!fs::exists(path, error)) throw Error(ErrorKind::Io, path + ": there is no such file or folder");
  std::shared_ptr<Graph> graph;
  if (fs::is_directory(path, error)) {
    graph = load_ir(path);
    try {
      check_attributes(*graph);
    } catch (const Error& e) {
      throw e.at((fs::path(path) / "graph.yaml").string());
    }
  } else {
    if (fs::path(path).extension() == ".so")
      throw Error(ErrorKind::InvalidInput, path + " is a compiled library",
                  "run it as it is; compile the model it was made from");
    graph = load_onnx(path, nullptr, options.limits);
    if (options.independent_dims) untie_dims(*graph);
  }
  fix_shapes(*graph, options.shapes);
  try {
    expand(*graph);
    check_nodes(*graph, options.limits);
  } catch (const Error& e) {
    if (is_stop(e)) throw;
    throw e.at(path);
  }
  return graph;
}

std::shared_ptr<Graph> prepare_model(const std::string& path, const CompileOptions& options, FusionReport* report) {
  const CompileTime time(options);
  auto graph = load_model(path, options);
  note_operators(*graph, report);
  if (fs::is_directory(path))
    infer_shapes(*graph);  // expand leaves open what the states of loops are
  else
    optimise(*graph, options, report);
  return graph;
}

void prepare_graph(Graph& graph, const CompileOptions& options, FusionReport* report) {
  const CompileTime time(options);
  fix_shapes(graph, options.shapes);
  expand(graph);
  check_nodes(graph, options.limits);
  note_operators(graph, report);
  optimise(graph, options, report);
}

}  // namespace ingot
