#include "loader/onnx_order.h"

#include <functional>
#include <queue>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "loader/onnx_wire.h"
#include "onnx.pb.h"

namespace ingot {
namespace {

using Names = std::unordered_set<std::string_view>;
using Visit = std::function<void(std::string_view)>;

void free_reads(const onnx::NodeProto&, int depth, const Visit&);

// Names that a subgraph reads and does not define.
void free_reads(const onnx::GraphProto& g, int depth, const Visit& visit) {
  if (depth > kMaxGraphDepth) invalid_model("subgraphs are nested more than {} deep", kMaxGraphDepth);
  Names own;
  for (const auto& v : g.input()) own.insert(v.name());
  for (const auto& t : g.initializer()) own.insert(t.name());
  for (const auto& s : g.sparse_initializer()) own.insert(s.values().name());
  for (const auto& n : g.node())
    for (const auto& o : n.output()) own.insert(o);
  const Visit outer = [&](std::string_view name) {
    if (!own.contains(name)) visit(name);
  };
  for (const auto& n : g.node()) free_reads(n, depth, outer);
  for (const auto& o : g.output()) outer(o.name());
}

void free_reads(const onnx::NodeProto& n, int depth, const Visit& visit) {
  for (const auto& i : n.input())
    if (!i.empty()) visit(i);
  for (const auto& a : n.attribute()) {
    if (a.has_g()) free_reads(a.g(), depth + 1, visit);
    for (const auto& g : a.graphs()) free_reads(g, depth + 1, visit);
  }
}

}  // namespace

std::vector<int> reading_order(const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes) {
  const int count = nodes.size();
  std::unordered_map<std::string_view, int> maker;
  for (int i = 0; i < count; i++)
    for (const auto& o : nodes[i].output())
      if (!o.empty() && !maker.emplace(o, i).second)
        invalid_model("tensor '{}' is made twice, by node '{}' and by node '{}'", o, nodes[maker[o]].name(),
                      nodes[i].name());

  std::vector<int> waits(static_cast<size_t>(count));
  std::vector<std::vector<int>> readers(static_cast<size_t>(count));
  bool sorted = true;
  for (int i = 0; i < count; i++)
    free_reads(nodes[i], 0, [&](std::string_view name) {
      auto it = maker.find(name);
      if (it == maker.end()) return;
      sorted &= it->second < i;
      readers[static_cast<size_t>(it->second)].push_back(i);
      waits[static_cast<size_t>(i)]++;
    });
  std::vector<int> order;
  order.reserve(static_cast<size_t>(count));
  if (sorted) {
    for (int i = 0; i < count; i++) order.push_back(i);
    return order;
  }
  // Kahn's algorithm; of the nodes that are ready, the one written first.
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (int i = 0; i < count; i++)
    if (waits[static_cast<size_t>(i)] == 0) ready.push(i);
  while (!ready.empty()) {
    const int i = ready.top();
    ready.pop();
    order.push_back(i);
    for (int r : readers[static_cast<size_t>(i)])
      if (--waits[static_cast<size_t>(r)] == 0) ready.push(r);
  }
  if (static_cast<int>(order.size()) < count)
    for (int i = 0; i < count; i++)
      if (waits[static_cast<size_t>(i)] > 0)
        invalid_model("the graph has a cycle through node '{}' ({})", nodes[i].name(), nodes[i].op_type());
  return order;
}

}  // namespace ingot
