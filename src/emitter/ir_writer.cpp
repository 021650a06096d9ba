#include "emitter/ir_writer.h"

#include <unordered_set>

#include "base/checked.h"
#include "base/error.h"
#include "base/hash.h"
#include "emitter/ir_text.h"
#include "loader/schema.h"

namespace ingot {
namespace {

constexpr size_t kMaxPlainKey = 900;  // yaml: a key without "?" has at most 1024 characters
constexpr int kMaxGraphDepth = 64;

class Writer {
 public:
  explicit Writer(WeightSink& sink) : sink_(sink) {}

  // The keys that a graph has, be it the model or a subgraph.
  void graph(const Graph& g, int indent, int depth) {
    if (depth > kMaxGraphDepth) fail(ErrorKind::Unsupported, "subgraphs are nested more than {} deep", kMaxGraphDepth);
    line(indent, "inputs: " + tensor_names(g, g.inputs));
    line(indent, "outputs: " + tensor_names(g, g.outputs));
    if (!g.metadata.empty()) {
      line(indent, "metadata:");
      for (const auto& [key, value] : g.metadata) entry(indent + 1, key, string_text(value));
    }
    line(indent, g.tensors.empty() ? "tensors: {}" : "tensors:");
    for (const Tensor& t : g.tensors) entry(indent + 1, t.name, tensor(t.info));
    line(indent, g.nodes.empty() ? "operator: {}" : "operator:");
    std::unordered_set<std::string_view> seen;
    for (const Node& n : g.nodes) {
      if (n.name.empty() || !seen.insert(n.name).second)
        invalid_model("{}: every operator needs a name of its own", n.label());
      node(g, n, indent + 1, depth);
    }
  }

  std::string text;

 private:
  void line(int indent, const std::string& s) {
    text.append(static_cast<size_t>(indent) * 2, ' ');
    text += s;
    text += '\n';
  }

  void entry(int indent, const std::string& key, const std::string& value) {
    std::string k = name_text(key);
    if (k.size() <= kMaxPlainKey) return line(indent, k + ": " + value);
    line(indent, "? " + k);
    line(indent, ": " + value);
  }
  // A key whose value follows on the next lines.
  void open(int indent, const std::string& key) {
    std::string k = name_text(key);
    if (k.size() <= kMaxPlainKey) return line(indent, k + ":");
    line(indent, "? " + k);
    line(indent, ":");
  }

  std::string tensor_names(const Graph& g, const std::vector<TensorId>& ids) {
    std::string out = "[";
    for (size_t i = 0; i < ids.size(); i++) {
      if (i) out += ", ";
      out += ids[i] == kNoTensor ? "\"\"" : name_text(g.tensor(ids[i]).name);
    }
    return out + "]";
  }

  std::string tensor(const TensorInfo& info) {
    if (info.constant) return constant(*info.constant);
    std::string out;
    if (info.dtype != DType::Undefined) out = fmt::format("dtype: {}", name(info.dtype));
    if (info.shape) out += (out.empty() ? "" : ", ") + ("shape: " + shape(*info.shape));
    if (info.form != Form::Tensor) out += fmt::format("{}form: {}", out.empty() ? "" : ", ", name(info.form));
    return "{" + out + "}";
  }

  static std::string shape(const Shape& s) {
    std::string out = "[";
    for (size_t i = 0; i < s.size(); i++) out += (i ? ", " : "") + dim_text(s[i]);
    return out + "]";
  }

  std::string constant(const Constant& c) {
    std::string out = fmt::format("{{dtype: {}, shape: {}", name(c.dtype), shape(to_shape(c.dims)));
    if (std::string value = inline_text(c); !value.empty()) return out + ", value: " + value + "}";
    return out + fmt::format(", location: [{}, {}], checksum: \"{}\"}}", sink_.add(c.bytes), c.bytes.size(),
                             hash64_hex(c.bytes));
  }

  void node(const Graph& g, const Node& given, int indent, int depth) {
    Node n = given;  // less what no operator of ONNX knows: nothing reads it, and the IR would be refused for it
    if (n.domain != "ingot")
      std::erase_if(n.attrs, [&](const auto& attr) { return !knows_attribute(given, attr.first); });
    std::string head = "type: " + name_text(n.op);
    if (!n.domain.empty()) head += ", domain: " + name_text(n.domain);
    head += ", input: " + tensor_names(g, n.inputs) + ", output: " + tensor_names(g, n.outputs);
    const std::string tail = n.origins == std::vector{n.name} ? "" : "origins: " + names_text(n.origins);
    bool graphs = false;
    for (const auto& [key, value] : n.attrs) graphs |= std::holds_alternative<GraphPtr>(value);
    if (!graphs) {
      if (!n.attrs.empty()) head += ", attr: " + attributes(n);
      return entry(indent, n.name, "{" + head + (tail.empty() ? "" : ", " + tail) + "}");
    }
    // Subgraphs take lines of their own.
    open(indent, n.name);
    line(indent + 1, "type: " + name_text(n.op));
    if (!n.domain.empty()) line(indent + 1, "domain: " + name_text(n.domain));
    line(indent + 1, "input: " + tensor_names(g, n.inputs));
    line(indent + 1, "output: " + tensor_names(g, n.outputs));
    if (!tail.empty()) line(indent + 1, tail);
    line(indent + 1, "attr:");
    for (const auto& [key, value] : n.attrs) {
      auto* sub = std::get_if<GraphPtr>(&value);
      if (!sub) {
        entry(indent + 2, key, std::visit([&](const auto& v) { return attribute(v); }, value));
        continue;
      }
      open(indent + 2, key);
      line(indent + 3, "graph:");
      line(indent + 4, "model: " + string_text((*sub)->name));
      graph(**sub, indent + 4, depth + 1);
    }
  }

  std::string attributes(const Node& n) {
    std::string out = "{";
    for (const auto& [key, value] : n.attrs) {
      const std::string k = name_text(key);
      if (k.size() > kMaxPlainKey) invalid_model("{}: an attribute has a name of {} characters", n.label(), key.size());
      out += (out.size() > 1 ? ", " : "") + k + ": " + std::visit([&](const auto& v) { return attribute(v); }, value);
    }
    return out + "}";
  }

  std::string attribute(int64_t v) { return std::to_string(v); }
  std::string attribute(float v) { return float_text(v); }
  std::string attribute(const std::string& v) { return string_text(v); }
  std::string attribute(const std::vector<int64_t>& v) { return list(v, "ints"); }
  std::string attribute(const std::vector<float>& v) { return list(v, "floats"); }
  std::string attribute(const std::vector<std::string>& v) { return list(v, "strings"); }
  std::string attribute(const ConstantPtr& v) { return constant(*v); }
  std::string attribute(const GraphPtr&) { return ""; }  // written by node()

  template <class T>
  std::string list(const std::vector<T>& values, const char* kind) {
    if (values.empty()) return fmt::format("{{{}: []}}", kind);
    std::string out = "[";
    for (size_t i = 0; i < values.size(); i++) out += (i ? ", " : "") + attribute(values[i]);
    return out + "]";
  }

  WeightSink& sink_;
};

}  // namespace

int64_t WeightSink::add(std::span<const std::byte> bytes) {
  auto& candidates = seen_[bytes.data()];
  for (size_t i : candidates)
    if (sections_[i].bytes.size() == bytes.size()) return sections_[i].offset;
  const int64_t offset = checked_add(size_, 63) / 64 * 64;
  candidates.push_back(sections_.size());
  sections_.push_back({offset, bytes});
  size_ = checked_add(offset, static_cast<int64_t>(bytes.size()));
  return offset;
}

std::string write_graph(const Graph& g, WeightSink& sink) {
  Writer writer(sink);
  writer.graph(g, 0, 0);
  return fmt::format("format: ingot-ir\nversion: 1\nmodel: {}\nweights: {{file: weights.bin, size: {}}}\n",
                     string_text(g.name), sink.size()) +
         writer.text;
}

}  // namespace ingot
