#include "loader/onnx_expansion.h"

#include "base/error.h"
#include "loader/onnx_wire.h"

namespace ingot {
namespace {

class Expansion {
 public:
  Expansion(const OnnxModel& model, int64_t most) : model_(model), most_(most) {}

  template <class Nodes>
  int64_t size(const Nodes& nodes, int depth) {
    if (depth > kMaxGraphDepth) invalid_model("graphs and functions are nested more than {} deep", kMaxGraphDepth);
    int64_t total = 0;
    for (const onnx::NodeProto& n : nodes) {
      total += 1;
      for (const auto& a : n.attribute())
        if (a.has_g()) total += size(a.g().node(), depth + 1);
      auto it = model_.functions.find(function_key(n.domain(), n.op_type(), n.overload()));
      if (it != model_.functions.end()) total += size(*it->second, depth + 1);
      if (total > most_)
        throw Error(ErrorKind::InvalidModel,
                    fmt::format("the model has more than {} nodes once functions are inlined", most_),
                    "the limit nodes allows more");
    }
    return total;
  }

 private:
  int64_t size(const onnx::FunctionProto& f, int depth) {
    auto [it, fresh] = sizes_.try_emplace(&f, kOpen);
    if (it->second == kOpen && !fresh) invalid_model("function '{}' calls itself", f.name());
    if (!fresh) return it->second;
    const int64_t n = size(f.node(), depth);
    return sizes_[&f] = n;
  }

  static constexpr int64_t kOpen = -1;  // being measured
  const OnnxModel& model_;
  const int64_t most_;
  std::unordered_map<const onnx::FunctionProto*, int64_t> sizes_;
};

}  // namespace

void check_expansion(const OnnxModel& model, int64_t most) {
  Expansion(model, most).size(model.proto.graph().node(), 0);
}

}  // namespace ingot
