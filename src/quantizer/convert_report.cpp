#include "quantizer/convert_report.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "base/error.h"
#include "base/json.h"
#include "quantizer/form_parts.h"
#include "quantizer/products.h"
#include "writer/onnx_graph.h"

namespace ingot {
namespace {

using Handle = Editor::Handle;

constexpr std::array kIntegerOps = {"QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger"};
constexpr std::array kMarks = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"};

template <class List>
bool contains(const List& list, const std::string& op) {
  return std::find(list.begin(), list.end(), op) != list.end();
}

// The node of the file that this one came from.
const std::string& source(const Node& n) { return n.origins.empty() ? n.name : n.origins[0]; }

class Describer {
 public:
  Describer(const Graph& marked, const Graph& written, ConvertReport& report)
      : copy_(deep_copy(marked)), e_(copy_), report_(report) {
    for (const Node& n : written.nodes) {
      if (!n.domain.empty()) continue;
      if (contains(kIntegerOps, n.op)) integer_.emplace(source(n), n.op);
      if (n.has_input(0) && is_byte(written.info(n.inputs[0]).dtype)) moves_.emplace(n.name, n.op);
    }
  }

  void run() {
    for (Handle h = 0; h < e_.size(); h++)
      if (const Node& n = e_.node(h); n.domain.empty() && !contains(kMarks, n.op)) node(n);
    inside(copy_nodes());
    e_.finish();
  }

 private:
  std::vector<Node> copy_nodes() const {
    std::vector<Node> out;
    for (Handle h = 0; h < e_.size(); h++) out.push_back(e_.node(h));
    return out;
  }

  void node(const Node& n) {
    if (contains(kIntegerOps, n.op)) return add(n, n.op);
    if (is_product(n)) return product(n);
    const bool recurrent = is_recurrent(n);
    if (recurrent && (marked(n, 1) || marked(n, 2)))
      return add(n, "weight-only", "ONNX has no integer operator for it");
    if (is_work_in_f32(n)) return skip(n, "its operands are not quantized");
    if (n.is("Gather") && n.has_input(0) && e_.is_constant(n.inputs[0]) && is_byte(e_.info(n.inputs[0]).dtype))
      return add(n, "integer");
    if (!reads_marks(n)) return;
    const auto it = moves_.find(n.name);
    if (it != moves_.end() && it->second == n.op) return add(n, "integer");
    add(n, "QDQ", report_.form.changed > 0 ? "ONNX has no integer operator for it" : "");
  }

  bool marked(const Node& n, size_t i) const { return n.has_input(i) && is_marked(e_, n.inputs[i]); }
  // Data that a node computes on; a bias and the bounds of a Clip are none.
  bool reads_marks(const Node& n) const {
    if (n.op == "Cast" || n.op == "Mul" || n.op == "Add") {
      bool all = !n.inputs.empty();
      for (size_t i = 0; i < n.inputs.size(); i++) all &= marked(n, i);
      return all;
    }
    return marked(n, 0);
  }

  bool dynamic(TensorId t) const {
    const Node* dq = e_.maker(t, "DequantizeLinear");
    return !dq || !e_.is_constant(dq->inputs[1]);
  }

  void product(const Node& n) {
    const bool x = marked(n, 0), w = marked(n, 1);
    if (!x && !w) return skip(n, "its operands are not quantized");
    if (auto it = integer_.find(source(n)); it != integer_.end()) return add(n, it->second);
    std::string why;
    if (auto it = report_.form.reasons.find(n.name); it != report_.form.reasons.end()) why = it->second;
    if (!x) return add(n, "weight-only", why);
    add(n, dynamic(n.inputs[0]) ? "dynamic QDQ" : "QDQ", why);
  }

  void inside(const std::vector<Node>& nodes) {
    for (const Node& n : nodes)
      for (const auto& [key, value] : n.attrs)
        if (const auto* body = std::get_if<GraphPtr>(&value); body && *body) {
          for (const Node& inner : (*body)->nodes)
            if (is_product(inner)) skip(inner, fmt::format("inside {} of {}: left as it is", key, n.label()));
          inside((*body)->nodes);
        }
  }

  void add(const Node& n, const std::string& form, const std::string& reason = "") {
    report_.quantized.push_back({source(n), n.op, form, reason});
  }
  void skip(const Node& n, const std::string& reason) { report_.unquantized.push_back({source(n), n.op, reason}); }

  Graph copy_;
  Editor e_;
  ConvertReport& report_;
  std::unordered_map<std::string, std::string> integer_, moves_;  // of the written graph: source -> operator
};

}  // namespace

void describe(const Graph& marked, const Graph& written, ConvertReport& report) {
  Describer(marked, written, report).run();
}

std::string report_text(const ConvertReport& r) {
  std::string out;
  size_t width = 4;
  for (const auto& n : r.quantized) width = std::max(width, n.name.size());
  for (const auto& n : r.unquantized) width = std::max(width, n.name.size());
  width = std::min<size_t>(width, 60);
  for (const auto& n : r.quantized) {
    const std::string why = n.reason.empty() ? "" : ": " + n.reason;
    out += fmt::format("{:<{}}  {:<18} {}{}\n", n.name, width, n.op, n.form, why);
  }
  for (const auto& n : r.unquantized) out += fmt::format("{:<{}}  {:<18} fp32: {}\n", n.name, width, n.op, n.reason);
  for (const auto& note : r.notes) out += fmt::format("note: {}\n", note);
  return out;
}

std::string report_json(const ConvertReport& r) {
  Json::Array done, left;
  for (const auto& n : r.quantized)
    done.push_back(Json::Object{{"name", n.name}, {"operator", n.op}, {"form", n.form}, {"reason", n.reason}});
  for (const auto& n : r.unquantized)
    left.push_back(Json::Object{{"name", n.name}, {"operator", n.op}, {"reason", n.reason}});
  const Json json(Json::Object{{"model", r.model},
                               {"output", r.output},
                               {"quantized", std::move(done)},
                               {"not_quantized", std::move(left)},
                               {"notes", Json::list(r.notes)}});
  return json.dump(2) + "\n";
}

}  // namespace ingot
