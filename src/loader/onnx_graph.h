// GraphProto and FunctionProto -> Graph. Private to the loader.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/unique_names.h"
#include "graph/graph.h"
#include "loader/onnx_tensor.h"
#include "loader/onnx_types.h"
#include "onnx.pb.h"

namespace ingot {

using Opsets = std::map<std::string, int64_t>;
using Attributes = std::map<std::string, Attribute>;

// What all graphs of one model share.
struct OnnxModel {
  explicit OnnxModel(std::shared_ptr<const FileContent> file) : tensors(std::move(file)) {}

  // In an arena: what is in one is never destroyed message by message, which protobuf cannot do where it ran out of
  // memory half way.
  google::protobuf::Arena arena;
  onnx::ModelProto& proto = *google::protobuf::Arena::CreateMessage<onnx::ModelProto>(&arena);
  TensorReader tensors;
  SymbolNames symbols;
  Opsets opsets;
  std::unordered_map<std::string, const onnx::FunctionProto*> functions;  // by function_key
};

std::string normal_domain(const std::string& domain);  // "ai.onnx" is ""
std::string function_key(const std::string& domain, const std::string& name, const std::string& overload);
// Checks the versions; domains imported twice count with the higher one.
Opsets read_opsets(const google::protobuf::RepeatedPtrField<onnx::OperatorSetIdProto>&);

class OnnxGraphBuilder {
 public:
  // `outer`: the graph around this one, nullptr for the main graph and for function bodies.
  // `function_attrs`: what attribute references stand for, nullptr outside functions.
  OnnxGraphBuilder(OnnxModel& model, OnnxGraphBuilder* outer, const Attributes* function_attrs, const Opsets& opsets,
                   int depth);

  GraphPtr build(const onnx::GraphProto&);
  // `arguments`: what is known of each operand of the call; absent ones read as absent in the body.
  GraphPtr build(const onnx::FunctionProto&, const std::vector<std::optional<TensorInfo>>& arguments);

 private:
  struct Capture {
    TensorId outer, inner;
  };

  TensorId define(const std::string& name, TensorInfo, const char* what);
  TensorId resolve(const std::string& name);
  TensorId lookup(const std::string& name);  // kUndefined when no scope has it
  TensorId define_output(const std::string& name);

  void add_initializers(const onnx::GraphProto&);
  void add_inputs(const onnx::GraphProto&);
  void add_hints(const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>&);
  void add_outputs(const onnx::GraphProto&);
  void add_nodes(const google::protobuf::RepeatedPtrField<onnx::NodeProto>&);
  void add_node(const onnx::NodeProto&, const std::string& name);
  void finish();

  std::optional<Attribute> attribute(const onnx::AttributeProto&,
                                     std::vector<std::unique_ptr<OnnxGraphBuilder>>& subgraphs);
  void add_captures(Node&, std::vector<std::unique_ptr<OnnxGraphBuilder>>& subgraphs);

  void inline_functions();
  GraphPtr function_body(const Node& call, const onnx::FunctionProto&);

  OnnxModel& model_;
  OnnxGraphBuilder* outer_;
  const Attributes* function_attrs_;
  const Opsets& opsets_;
  int depth_;
  GraphPtr graph_;
  std::unordered_map<std::string, TensorId> names_;  // as the file spells them
  std::unordered_map<std::string, TensorInfo>
      hints_;  // declared types of inner tensors: used by extractors, then dropped
  UniqueNames node_names_;
  std::unordered_map<std::string, const onnx::FunctionProto*> calls_;  // by node name
  std::vector<Capture> captures_;
};

// Attributes that are not graphs.
Attribute read_attribute(const onnx::AttributeProto&, TensorReader&);

}  // namespace ingot
