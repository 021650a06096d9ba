#include "writer/onnx_writer.h"

#include <filesystem>
#include <memory>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "base/file.h"
#include "base/unique_names.h"
#include "loader/onnx_loader.h"
#include "loader/schema.h"
#include "onnx.pb.h"
#include "writer/downgrade.h"
#include "writer/onnx_graph.h"

namespace ingot {
namespace {

constexpr int64_t kMicrosoftOpset = 1;
constexpr size_t kMinExternalBytes = 1024;   // smaller tensors stay in the model file
constexpr size_t kPagedBytes = 1 << 16;      // from here on a tensor starts on a page, so that it can be mapped
constexpr int64_t kPage = 4096, kLine = 64;  // bytes

// The file of weights beside the model.
class ExternalData {
 public:
  explicit ExternalData(const std::string& model_path)
      : file_(model_path + ".data"), location_(std::filesystem::path(model_path).filename().string() + ".data") {}

  void add(const Constant& c, onnx::TensorProto& proto) {
    const int64_t unit = c.bytes.size() >= kPagedBytes ? kPage : kLine;
    const auto gap = static_cast<size_t>((unit - file_.size() % unit) % unit);
    file_.write(std::vector<std::byte>(gap));
    proto.set_data_location(onnx::TensorProto::EXTERNAL);
    entry(proto, "location", location_);
    entry(proto, "offset", std::to_string(file_.size()));
    entry(proto, "length", std::to_string(c.bytes.size()));
    file_.write(c.bytes);
  }
  void commit() { file_.commit(); }

 private:
  static void entry(onnx::TensorProto& proto, const char* key, const std::string& value) {
    auto* e = proto.add_external_data();
    e->set_key(key);
    e->set_value(value);
  }

  AtomicFile file_;
  std::string location_;
};

bool is_plain_symbol(const std::string& text) { return text.find_first_of(" *+-()?/") == std::string::npos; }

void write_type(const TensorInfo& info, onnx::TypeProto& type) {
  onnx::TypeProto* at = &type;
  if (info.form == Form::Optional || info.form == Form::OptionalSequence)
    at = at->mutable_optional_type()->mutable_elem_type();
  if (info.form == Form::Sequence || info.form == Form::OptionalSequence)
    at = at->mutable_sequence_type()->mutable_elem_type();
  auto* tensor = at->mutable_tensor_type();
  tensor->set_elem_type(static_cast<int32_t>(info.dtype));
  if (!info.shape) return;
  auto* shape = tensor->mutable_shape();
  for (const Dim& d : *info.shape) {
    auto* dim = shape->add_dim();
    if (d.is_const())
      dim->set_dim_value(d.value());
    else if (!d.is_unknown() && is_plain_symbol(d.str()))
      dim->set_dim_param(d.str());
  }
}

// A large initializer of the main graph, whose bytes go from where they are straight into the file.
struct StreamedTensor {
  onnx::TensorProto* head;  // all but raw_data
  std::span<const std::byte> bytes;
};

// What the writers of all graphs of one model share.
struct Sink {
  UniqueNames names;  // one name space: a subgraph sees the names around it
  std::unique_ptr<ExternalData> external;
  google::protobuf::Arena& arena;
  std::vector<StreamedTensor> streamed;

  void initializer(const Constant& c, const std::string& name, bool main, onnx::GraphProto& graph) {
    if (!main || external || c.dtype == DType::String || c.bytes.size() < kPagedBytes)
      return tensor(c, name, *graph.add_initializer());
    streamed.push_back({google::protobuf::Arena::CreateMessage<onnx::TensorProto>(&arena), c.bytes});
    type(c, name, *streamed.back().head);
  }

  static void type(const Constant& c, const std::string& name, onnx::TensorProto& proto) {
    proto.set_name(name);
    proto.set_data_type(static_cast<int32_t>(c.dtype));
    for (int64_t d : c.dims) proto.add_dims(d);
  }

  void tensor(const Constant& c, const std::string& name, onnx::TensorProto& proto) const {
    type(c, name, proto);
    if (c.dtype == DType::String)
      for (const auto& s : c.strings) proto.add_string_data(s);
    else if (external && c.bytes.size() >= kMinExternalBytes)
      external->add(c, proto);
    else
      proto.set_raw_data(c.bytes.data(), c.bytes.size());
  }
};

class GraphWriter {
 public:
  GraphWriter(const Graph& graph, Sink& sink, const GraphWriter* outer) : graph_(graph), sink_(sink), outer_(outer) {}

  // `captured`: the outer names of the last inputs of the graph.
  void write(onnx::GraphProto& out, const std::vector<std::string>& captured = {}) {
    out.set_name(graph_.name.empty() ? "graph" : graph_.name);
    const size_t formal = graph_.inputs.size() - captured.size();
    names_.resize(graph_.tensors.size());
    for (size_t i = 0; i < captured.size(); i++) names_[index(graph_.inputs[formal + i])] = captured[i];
    for (size_t i = 0; i < names_.size(); i++)
      if (names_[i].empty()) names_[i] = sink_.names.make(graph_.tensors[i].name);
    for (size_t i = 0; i < formal; i++) value(graph_.inputs[i], *out.add_input());
    constants(out);
    if (!outer_) shared_constants(out);
    for (const Node& n : graph_.nodes) node(n, *out.add_node());
    outputs(out, captured);
    hints(out);
  }

 private:
  static size_t index(TensorId t) { return static_cast<size_t>(t); }
  const std::string& name(TensorId t) const { return names_[index(t)]; }

  void value(TensorId t, onnx::ValueInfoProto& out) const {
    out.set_name(name(t));
    if (graph_.info(t).dtype != DType::Undefined) write_type(graph_.info(t), *out.mutable_type());
  }

  const std::string* shared(const Constant* c) const {
    for (const GraphWriter* w = this; w; w = w->outer_)
      if (auto it = w->constants_.find(c); it != w->constants_.end()) return &it->second;
    return nullptr;
  }

  // Constants that somebody reads. One that the outer graph has stored is referred to, unless it is a result here.
  void constants(onnx::GraphProto& out) {
    std::vector<bool> used(graph_.tensors.size()), result(graph_.tensors.size());
    for (const Node& n : graph_.nodes)
      for (TensorId t : n.inputs)
        if (t != kNoTensor) used[index(t)] = true;
    for (TensorId t : graph_.outputs) used[index(t)] = result[index(t)] = true;
    for (size_t i = 0; i < used.size(); i++) {
      const ConstantPtr& c = graph_.tensors[i].info.constant;
      if (!c || !used[i]) continue;
      if (const std::string* outside = outer_ && !result[i] ? outer_->shared(c.get()) : nullptr) {
        names_[i] = *outside;
        continue;
      }
      sink_.initializer(*c, names_[i], !outer_, out);
      constants_.emplace(c.get(), names_[i]);
    }
  }

  // Large constants that several subgraphs read, but not the graph itself, are stored here for all of them.
  void shared_constants(onnx::GraphProto& out) {
    std::vector<const Constant*> read;  // once for each subgraph, in the order of the file
    list_readings(graph_, read);
    std::unordered_map<const Constant*, int> readers;
    for (const Constant* c : read) readers[c]++;
    for (const Constant* c : read) {
      if (readers[c] < 2 || c->bytes.size() < kMinExternalBytes || shared(c)) continue;
      const std::string name = sink_.names.make(graph_.name.empty() ? "shared" : graph_.name + "_shared");
      sink_.initializer(*c, name, true, out);
      constants_.emplace(c, name);
    }
  }
  static void list_readings(const Graph& g, std::vector<const Constant*>& read) {
    for (const Node& n : g.nodes)
      for (const auto& [key, value] : n.attrs)
        if (const auto* body = std::get_if<GraphPtr>(&value)) {
          for (const Tensor& t : (*body)->tensors)
            if (t.info.constant) read.push_back(t.info.constant.get());
          list_readings(**body, read);
        }
  }

  void outputs(onnx::GraphProto& out, const std::vector<std::string>& captured) {
    const size_t formal = graph_.inputs.size() - captured.size();
    std::set<std::string> listed;
    for (TensorId t : graph_.outputs) {
      const bool outside =
          std::find(graph_.inputs.begin() + static_cast<long>(formal), graph_.inputs.end(), t) != graph_.inputs.end();
      auto* info = out.add_output();
      value(t, *info);
      // A graph returns what it made itself, each once.
      if (outside || !listed.insert(name(t)).second) {
        auto* copy = out.add_node();
        copy->set_op_type("Identity");
        copy->add_input(name(t));
        info->set_name(sink_.names.make(graph_.tensor(t).name + "_out"));
        copy->add_output(info->name());
      }
    }
  }

  // Types of inner tensors, where they are known.
  void hints(onnx::GraphProto& out) const {
    std::vector<bool> listed(graph_.tensors.size());
    for (TensorId t : graph_.outputs) listed[index(t)] = true;
    for (const Node& n : graph_.nodes)
      for (TensorId t : n.outputs)
        if (t != kNoTensor && !listed[index(t)] && graph_.info(t).dtype != DType::Undefined && graph_.info(t).shape)
          value(t, *out.add_value_info());
  }

  void node(const Node& n, onnx::NodeProto& out) {
    if (n.domain.starts_with("ingot"))
      throw Error(ErrorKind::Unsupported,
                  fmt::format("{}: is an operator of Ingot's own, which ONNX does not have", n.label()),
                  "write Engine IR or a library instead");
    if (n.is("Optional") && n.inputs.empty()) unsupported("{}: an optional without a value is not written", n.label());
    out.set_name(n.name);
    out.set_op_type(n.op);
    if (!n.domain.empty()) out.set_domain(n.domain);
    const auto captures = static_cast<size_t>(n.get_int("captures", 0));
    const size_t operands = n.inputs.size() - captures;
    std::vector<std::string> captured;
    for (size_t i = 0; i < n.inputs.size(); i++) {
      const std::string text = n.inputs[i] == kNoTensor ? "" : name(n.inputs[i]);
      if (i < operands)
        out.add_input(text);
      else
        captured.push_back(text);
    }
    for (TensorId t : n.outputs) out.add_output(t == kNoTensor ? "" : name(t));
    for (const auto& [key, attribute] : n.attrs)
      if (key != "captures") this->attribute(attribute, captured, key, *out.add_attribute());
  }

  void attribute(const Attribute& a, const std::vector<std::string>& captured, const std::string& key,
                 onnx::AttributeProto& out) {
    using Proto = onnx::AttributeProto;
    out.set_name(key);
    std::visit(
        [&](const auto& v) {
          using T = std::decay_t<decltype(v)>;
          if constexpr (std::is_same_v<T, int64_t>) {
            out.set_type(Proto::INT), out.set_i(v);
          } else if constexpr (std::is_same_v<T, float>) {
            out.set_type(Proto::FLOAT), out.set_f(v);
          } else if constexpr (std::is_same_v<T, std::string>) {
            out.set_type(Proto::STRING), out.set_s(v);
          } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
            out.set_type(Proto::INTS);
            for (int64_t x : v) out.add_ints(x);
          } else if constexpr (std::is_same_v<T, std::vector<float>>) {
            out.set_type(Proto::FLOATS);
            for (float x : v) out.add_floats(x);
          } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
            out.set_type(Proto::STRINGS);
            for (const auto& x : v) out.add_strings(x);
          } else if constexpr (std::is_same_v<T, ConstantPtr>) {
            out.set_type(Proto::TENSOR);
            sink_.tensor(*v, key, *out.mutable_t());
          } else {
            out.set_type(Proto::GRAPH);
            GraphWriter(*v, sink_, this).write(*out.mutable_g(), captured);
          }
        },
        a);
  }

  const Graph& graph_;
  Sink& sink_;
  const GraphWriter* outer_;
  std::vector<std::string> names_;                              // by tensor
  std::unordered_map<const Constant*, std::string> constants_;  // stored here
};

using Opsets = std::map<std::string, int64_t>;

// The domains that the graph uses, each with the version its operators are written in.
void collect_opsets(const Graph& g, const Opsets& given, Opsets& out) {
  for (const Node& n : g.nodes) {
    auto source = given.find(n.domain);
    int64_t& version = out[n.domain];
    version = std::max({version, first_opset(n).value_or(1), source == given.end() ? kMicrosoftOpset : source->second});
    for (const auto& [key, value] : n.attrs)
      if (const auto* body = std::get_if<GraphPtr>(&value)) collect_opsets(**body, given, out);
  }
}

// That of the first ONNX release with the opset.
int64_t ir_version(int64_t opset) {
  if (opset <= 11) return 6;
  if (opset <= 14) return 7;
  if (opset <= 18) return 8;
  if (opset <= 20) return 9;
  if (opset <= 22) return 10;
  if (opset == 23) return 11;
  if (opset == 24) return 12;
  return opset <= 26 ? 13 : 14;
}

int64_t weight_bytes(const Graph& g) {
  int64_t total = 0;
  for (const Tensor& t : g.tensors)
    if (t.info.constant) total += static_cast<int64_t>(t.info.constant->bytes.size());
  for (const Node& n : g.nodes)
    for (const auto& [key, value] : n.attrs) {
      if (const auto* body = std::get_if<GraphPtr>(&value)) total += weight_bytes(**body);
      if (const auto* c = std::get_if<ConstantPtr>(&value)) total += static_cast<int64_t>((*c)->bytes.size());
    }
  return total;
}

// protobuf's wire format, for what is too large to be copied by it.
std::string field_start(int number, size_t length) {
  std::string out;
  auto varint = [&](uint64_t v) {
    for (; v >= 0x80; v >>= 7) out.push_back(static_cast<char>(v | 0x80));
    out.push_back(static_cast<char>(v));
  };
  constexpr int kLengthDelimited = 2;
  varint(static_cast<uint64_t>(number) << 3 | kLengthDelimited);
  varint(length);
  return out;
}

std::string serialized(const google::protobuf::MessageLite& message, const std::string& path) {
  std::string bytes;
  if (!message.SerializeToString(&bytes)) fail(ErrorKind::Internal, "{}: the model does not fit into one file", path);
  return bytes;
}

// The model, with the streamed initializers at the end of its graph, which is at the end of the file.
void write_model(onnx::ModelProto& model, const std::vector<StreamedTensor>& streamed, const std::string& path,
                 AtomicFile& file) {
  const std::string graph = serialized(model.graph(), path);
  model.clear_graph();
  std::vector<std::string> heads;  // of each tensor, up to its bytes
  size_t total = graph.size();
  for (const StreamedTensor& t : streamed) {
    const std::string head =
        serialized(*t.head, path) + field_start(onnx::TensorProto::kRawDataFieldNumber, t.bytes.size());
    heads.push_back(field_start(onnx::GraphProto::kInitializerFieldNumber, head.size() + t.bytes.size()) + head);
    total += heads.back().size() + t.bytes.size();
  }
  file.write(serialized(model, path));
  file.write(field_start(onnx::ModelProto::kGraphFieldNumber, total));
  file.write(graph);
  for (size_t i = 0; i < streamed.size(); i++) {
    file.write(heads[i]);
    file.write(streamed[i].bytes);
  }
}

}  // namespace

void check_opset(int64_t opset) {
  if (opset < kOldestWrittenOpset || opset > kNewestOpset)
    throw Error(ErrorKind::InvalidInput, fmt::format("opset {} cannot be written", opset),
                fmt::format("opsets {} to {} can", kOldestWrittenOpset, kNewestOpset));
}

void write_onnx(const Graph& given, const std::string& path, const OnnxWriteOptions& options) {
  Graph older;
  if (options.opset) {
    check_opset(*options.opset);
    older = deep_copy(given);
    downgrade(older, *options.opset);
  }
  const Graph& graph = options.opset ? older : given;
  Opsets opsets = {{"", kOldestCurrentOpset}};
  collect_opsets(graph, options.opsets, opsets);
  if (options.opset) opsets[""] = *options.opset;
  google::protobuf::Arena arena;  // as in loader/onnx_graph.h
  onnx::ModelProto& model = *google::protobuf::Arena::CreateMessage<onnx::ModelProto>(&arena);
  model.set_ir_version(ir_version(opsets[""]));
  model.set_producer_name("ingot");
  for (const auto& [domain, version] : opsets) {
    auto* import = model.add_opset_import();
    import->set_domain(domain);
    import->set_version(version);
  }
  for (const auto& [key, value] : graph.metadata) {
    auto* entry = model.add_metadata_props();
    entry->set_key(key);
    entry->set_value(value);
  }
  Sink sink{.arena = arena};
  if (options.external_data || weight_bytes(graph) > kMaxInlineBytes)
    sink.external = std::make_unique<ExternalData>(path);
  GraphWriter(graph, sink, nullptr).write(*model.mutable_graph());
  AtomicFile file(path);
  write_model(model, sink.streamed, path, file);
  if (sink.external) sink.external->commit();
  file.commit();
}

}  // namespace ingot
