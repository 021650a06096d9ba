#include "extractors/extract.h"

#include <string_view>
#include <unordered_map>

#include "extractors/rewriter.h"
#include "extractors/type_hints.h"

namespace ingot {
namespace {

using RuleIndex = std::unordered_map<std::string, std::vector<const Rule*>>;

std::string key(std::string_view domain, std::string_view op) { return std::string(domain) + ":" + std::string(op); }

const RuleIndex& rules() {
  static const RuleIndex index = [] {
    RuleIndex made;
    std::vector<RuleTable> tables = {elementwise_rules(),
                                     shape_rules(),
                                     pad_slice_rules(),
                                     reduce_rules(),
                                     network_rules(),
                                     resize_rules(),
                                     other_rules(),
                                     experimental_rules(),
                                     microsoft_rules(),
                                     microsoft_nbits_rules(),
                                     microsoft_standard_rules(),
                                     microsoft_quantized_rules(),
                                     nchwc_rules(),
                                     ml_rules(),
                                     ml_tree_rules(),
                                     ml_svm_rules()};
    for (const RuleTable& table : qonnx_rules()) tables.push_back(table);
    for (const RuleTable& table : tables)
      for (const Rule& rule : table.rules) made[key(table.domain, rule.op)].push_back(&rule);
    return made;
  }();
  return index;
}

const Rule* find_rule(const Node& node, int64_t version) {
  auto it = rules().find(key(node.domain, node.op));
  if (it == rules().end()) return nullptr;
  for (const Rule* rule : it->second)
    if (rule->since <= version && version <= rule->until) return rule;
  return nullptr;
}

}  // namespace

void extract(Graph& graph, const std::map<std::string, int64_t>& opsets) {
  Rewriter r(graph);
  std::vector<Node> out;
  out.reserve(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); i++) {
    const size_t first = out.size();
    r.node = graph.nodes[i];
    if (r.node.domain.empty()) r.node.attrs.erase("consumed_inputs");  // opset 1's way to say "in place"
    auto opset = opsets.find(r.node.domain);
    r.version = opset == opsets.end() ? 1 : opset->second;
    if (const Rule* rule = find_rule(r.node, r.version)) rule->rewrite(r);
    r.flush(out);
    for (size_t k = first; k < out.size(); k++) propagate_hints(graph, out[k]);
  }
  graph.nodes = std::move(out);
}

}  // namespace ingot
