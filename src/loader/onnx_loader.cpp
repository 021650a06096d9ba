#include "loader/onnx_loader.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "base/error.h"
#include "base/file.h"
#include "loader/onnx_expansion.h"
#include "loader/onnx_graph.h"
#include "loader/onnx_wire.h"
#include "onnx.pb.h"

namespace ingot {

std::string normal_domain(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

std::string function_key(const std::string& domain, const std::string& name, const std::string& overload) {
  // Lengths in front: no choice of names makes two keys equal.
  const std::string d = normal_domain(domain);
  return fmt::format("{}:{}:{}{}{}", d.size(), name.size(), d, name, overload);
}

Opsets read_opsets(const google::protobuf::RepeatedPtrField<onnx::OperatorSetIdProto>& imports) {
  Opsets opsets;
  for (const auto& import : imports) {
    const std::string domain = normal_domain(import.domain());
    if (import.version() < 1) invalid_model("opset '{}' has version {}", domain, import.version());
    if (domain.empty() && import.version() > kNewestOpset)
      throw Error(ErrorKind::Unsupported,
                  fmt::format("uses opset {}; the newest supported is {}", import.version(), kNewestOpset),
                  fmt::format("export the model with opset {} or lower", kNewestOpset));
    opsets[domain] = std::max(opsets[domain], import.version());
  }
  return opsets;
}

namespace {

void parse(const std::string& bytes, onnx::ModelProto& proto) {
  google::protobuf::io::ArrayInputStream array(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedInputStream stream(&array);
  // A subgraph takes three messages (graph, node, attribute); the depth of graphs has its own limit.
  stream.SetRecursionLimit(4 * kMaxGraphDepth);
  stream.SetTotalBytesLimit(INT32_MAX);
  if (!proto.ParseFromCodedStream(&stream) || !stream.ConsumedEntireMessage())
    throw Error(ErrorKind::InvalidModel, "is not a valid ONNX file", "the file may be truncated, or not an ONNX model");
}

void read_model(OnnxModel& model, std::span<const std::byte> file, const Limits& limits) {
  if (file.empty()) invalid_model("the file is empty");
  const std::string bytes = cut_raw_data(file);
  if (bytes.size() > INT32_MAX) invalid_model("more than 2 GB are left without the weights");
  parse(bytes, model.proto);
  const auto& proto = model.proto;
  if (!proto.has_graph()) throw Error(ErrorKind::InvalidModel, "has no graph", "the file may not be an ONNX model");
  model.opsets = read_opsets(proto.opset_import());
  if (!model.opsets.contains("")) {
    // Before IR version 3 there were no imports; later a model of functions and other domains may need none.
    model.opsets[""] = proto.ir_version() < 3 ? 1 : kNewestOpset;
    if (proto.opset_import().empty() && proto.ir_version() >= 3) invalid_model("does not say which opset it uses");
  }
  for (const auto& f : proto.functions())
    if (!model.functions.emplace(function_key(f.domain(), f.name(), f.overload()), &f).second)
      invalid_model("function '{}' is defined twice", f.name());
  check_expansion(model, static_cast<int64_t>(limits.nodes));
}

}  // namespace

std::shared_ptr<Graph> load_onnx(const std::string& path, std::map<std::string, int64_t>* opsets,
                                 const Limits& limits) try {
  auto file = FileContent::read(path);
  OnnxModel model(file);
  read_model(model, file->bytes(), limits);
  GraphPtr graph = OnnxGraphBuilder(model, nullptr, nullptr, model.opsets, 0).build(model.proto.graph());
  for (const auto& entry : model.proto.metadata_props()) graph->metadata[entry.key()] = entry.value();
  verify(*graph);
  if (opsets) *opsets = read_opsets(model.proto.opset_import());
  return graph;
} catch (const Error& e) {
  // Errors about the file itself start with its name already.
  throw e.message().starts_with(path + ":") ? e : e.at(path);
}

}  // namespace ingot
