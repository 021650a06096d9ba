#include "expansions/expander.h"

#include <algorithm>

#include "base/checked.h"
#include "expansions/graph_expansion.h"
#include "kernels/number.h"

namespace ingot {

Expander::Expander(GraphExpansion& run, const Node& n) : node(n), run_(run), results_(n.outputs.size(), kNoTensor) {}

const TensorInfo& Expander::info(TensorId t) const { return run_.info(t); }

TensorId Expander::in(size_t i) const {
  require(has(i), "operand {} is missing", i);
  return node.inputs[i];
}

const std::vector<Node>& Expander::nodes_before() const { return run_.done_; }

TensorId Expander::find(const std::string& tensor) const { return run_.graph_.find_tensor(tensor); }

DType Expander::dtype(TensorId t) const {
  if (info(t).dtype == DType::Undefined)
    fail(ErrorKind::Unsupported, "the element type of '{}' is not known", run_.graph_.tensor(t).name);
  return info(t).dtype;
}

Shape Expander::shape(TensorId t) const {
  if (!info(t).shape) fail(ErrorKind::Unsupported, "the rank of '{}' is not known", run_.graph_.tensor(t).name);
  return *info(t).shape;
}

int64_t Expander::number(TensorId t, int64_t at) const {
  const Size s = size(t, at);
  if (!s.is_number())
    fail(ErrorKind::Unsupported, "dim {} of '{}', which is {}, must be a number", at, run_.graph_.tensor(t).name,
         str(shape(t)));
  return s.number;
}

int64_t Expander::axis(int64_t value, int64_t rank) const {
  require(value >= -rank && value < rank, "axis {} is outside [{}, {})", value, -rank, rank);
  return value < 0 ? value + rank : value;
}

TensorId Expander::emit(const std::string& op, std::vector<TensorId> inputs, std::map<std::string, Attribute> attrs) {
  return emit_many(op, std::move(inputs), 1, std::move(attrs))[0];
}

std::vector<TensorId> Expander::emit_many(const std::string& op, std::vector<TensorId> inputs, size_t results,
                                          std::map<std::string, Attribute> attrs) {
  while (!inputs.empty() && inputs.back() == kNoTensor) inputs.pop_back();
  Node n;
  n.op = op;
  n.name = run_.node_name(node.name + "/" + op);
  n.inputs = std::move(inputs);
  n.attrs = std::move(attrs);
  n.origins = node.origins;
  for (size_t i = 0; i < results; i++) n.outputs.push_back(run_.new_tensor(node.name + "/" + op));
  std::vector<TensorId> made = n.outputs;
  run_.add(std::move(n), nodes_);
  return made;
}

std::vector<TensorId> Expander::emit_copy(const Node& original, std::vector<TensorId> inputs) {
  Node n = original;
  n.name = run_.node_name(node.name + "/" + n.op);
  n.inputs = std::move(inputs);
  n.origins = node.origins;
  for (TensorId& t : n.outputs)
    if (t != kNoTensor) t = run_.new_tensor(node.name + "/" + n.op);
  std::vector<TensorId> made = n.outputs;
  run_.add(std::move(n), nodes_);
  return made;
}

std::vector<TensorId> Expander::inline_graph(const Graph& body, const std::vector<TensorId>& inputs) {
  require(body.inputs.size() == inputs.size(), "its graph '{}' takes {} values, not {}", body.name, body.inputs.size(),
          inputs.size());
  std::vector<TensorId> mapped(body.tensors.size(), kNoTensor);
  for (size_t i = 0; i < inputs.size(); i++) mapped[static_cast<size_t>(body.inputs[i])] = inputs[i];
  for (size_t i = 0; i < mapped.size(); i++)
    if (mapped[i] == kNoTensor)
      mapped[i] = run_.new_tensor(node.name + "/" + body.tensors[i].name, body.tensors[i].info);
  auto outside = [&](TensorId& t) {
    if (t != kNoTensor) t = mapped[static_cast<size_t>(t)];
  };
  for (Node n : body.nodes) {
    n.name = run_.node_name(node.name + "/" + n.name);
    n.origins = node.origins;
    std::for_each(n.inputs.begin(), n.inputs.end(), outside);
    std::for_each(n.outputs.begin(), n.outputs.end(), outside);
    run_.add(std::move(n), nodes_);
  }
  std::vector<TensorId> out = body.outputs;
  std::for_each(out.begin(), out.end(), outside);
  return out;
}

void Expander::result(size_t i, TensorId t) {
  if (i < results_.size()) results_[i] = t;
}

// A result made here takes the place of the node's; one that is an operand, a constant, or given twice is copied.
void Expander::finish(std::vector<Node>& out) {
  std::unordered_map<TensorId, TensorId> renamed;
  for (const Node& n : nodes_)
    for (TensorId t : n.outputs)
      if (t != kNoTensor) renamed.emplace(t, kNoTensor);
  for (size_t i = 0; i < results_.size(); i++) {
    const TensorId wanted = node.outputs[i], made = results_[i];
    if (wanted == kNoTensor) continue;
    if (made == kNoTensor) fail(ErrorKind::Unsupported, "its result {} is not served", i);
    auto it = renamed.find(made);
    if (it != renamed.end() && it->second == kNoTensor) {
      it->second = wanted;
      run_.info(wanted) = TensorInfo(info(made));
    } else {
      Node copy;
      copy.op = "Identity";
      copy.name = run_.node_name(node.name + "/Identity");
      copy.inputs = {made};
      copy.outputs = {wanted};
      copy.origins = node.origins;
      run_.add(std::move(copy), nodes_);
    }
  }
  auto rename = [&](TensorId& t) {
    auto it = renamed.find(t);
    if (it != renamed.end() && it->second != kNoTensor) t = it->second;
  };
  for (Node& n : nodes_) {
    std::for_each(n.inputs.begin(), n.inputs.end(), rename);
    std::for_each(n.outputs.begin(), n.outputs.end(), rename);
    out.push_back(std::move(n));
  }
}

TensorId Expander::constant(ConstantPtr c, const std::string& what) {
  TensorInfo type{c->dtype, to_shape(c->dims), std::nullopt, c};
  return run_.new_tensor(node.name + "/" + what, std::move(type));
}

TensorId Expander::ints(const std::vector<int64_t>& values) {
  return constant(make_constant(DType::I64, {static_cast<int64_t>(values.size())}, values), "sizes");
}

TensorId Expander::scalar(double value, DType dtype) {
  if (dtype != DType::Bool && (bits(dtype) < 8 || !(is_integer(dtype) || (is_float(dtype) && bits(dtype) > 8))))
    fail(ErrorKind::Unsupported, "is not served for {}", name(dtype));
  return constant(kernel::with_number_type(static_cast<int64_t>(dtype), [&]<class T>() {
    const std::vector<T> one = {kernel::narrow<T>(static_cast<kernel::Wide<T>>(value))};
    return make_constant(dtype, {}, one);
  }));
}

TensorId Expander::cast(TensorId t, DType to) {
  return info(t).dtype == to ? t : emit("Cast", {t}, {{"to", static_cast<int64_t>(to)}});
}

TensorId Expander::transpose(TensorId t, const std::vector<int64_t>& perm) {
  return std::is_sorted(perm.begin(), perm.end()) ? t : emit("Transpose", {t}, {{"perm", perm}});
}

TensorId Expander::unsqueeze(TensorId t, const std::vector<int64_t>& axes) {
  return axes.empty() ? t : emit("Unsqueeze", {t, ints(axes)});
}

TensorId Expander::squeeze(TensorId t, const std::vector<int64_t>& axes) {
  return axes.empty() ? t : emit("Squeeze", {t, ints(axes)});
}

TensorId Expander::reduce(const std::string& op, TensorId t, const std::vector<int64_t>& axes, bool keep) {
  return axes.empty() ? t : emit(op, {t, ints(axes)}, {{"keepdims", int64_t{keep}}});
}

TensorId Expander::concat(const std::vector<TensorId>& parts, int64_t at) {
  return parts.size() == 1 ? parts[0] : emit("Concat", parts, {{"axis", at}});
}

TensorId Expander::slice(TensorId t, int64_t at, const Size& begin, const Size& end, int64_t step) {
  return emit("Slice", {t, sizes({begin}), sizes({end}), ints({at}), ints({step})});
}

TensorId Expander::count_up(const Size& n) {
  return emit("Range", {scalar(0, DType::I64), scalar_size(n), scalar(1, DType::I64)});
}

Size Expander::size(TensorId t, int64_t at) const {
  const Shape s = shape(t);
  at = axis(at, static_cast<int64_t>(s.size()));
  const Dim& dim = s[static_cast<size_t>(at)];
  if (dim.is_const()) return dim.value();
  Size made = 1;
  made.factors = {operand_axis(dim).value_or(std::pair{t, at})};
  return made;
}

// An axis of an operand with this size: asked for it, nothing in between needs to be made.
std::optional<std::pair<TensorId, int64_t>> Expander::operand_axis(const Dim& dim) const {
  for (TensorId t : node.inputs) {
    if (t == kNoTensor || !info(t).shape) continue;
    const Shape& s = *info(t).shape;
    for (size_t d = 0; d < s.size(); d++)
      if (s[d] == dim) return std::pair{t, static_cast<int64_t>(d)};
  }
  return std::nullopt;
}

Size operator*(Size a, const Size& b) {
  a.number = checked_mul(a.number, b.number);
  a.factors.insert(a.factors.end(), b.factors.begin(), b.factors.end());
  return a;
}

TensorId Expander::sizes(const std::vector<Size>& wanted) {
  std::vector<TensorId> parts;
  std::vector<int64_t> numbers;
  auto flush = [&] {
    if (!numbers.empty()) parts.push_back(ints(numbers));
    numbers.clear();
  };
  for (const Size& s : wanted) {
    if (s.is_number()) {
      numbers.push_back(s.number);
      continue;
    }
    flush();
    TensorId all = s.number == 1 ? kNoTensor : ints({s.number});
    for (auto [t, at] : s.factors) {
      const TensorId one = emit("Shape", {t}, {{"start", at}, {"end", at + 1}});
      all = all == kNoTensor ? one : emit("Mul", {all, one});
    }
    parts.push_back(all);
  }
  flush();
  return parts.empty() ? ints({}) : concat(parts, 0);
}

TensorId Expander::scalar_size(const Size& n) {
  if (n.is_number()) return scalar(static_cast<double>(n.number), DType::I64);
  return squeeze(sizes({n}), {0});
}

TensorId Expander::reshape(TensorId t, const std::vector<Size>& wanted) {
  // A size that may be 0 means itself, not "as before"; beside a -1 it cannot be said.
  const bool rest =
      std::any_of(wanted.begin(), wanted.end(), [](const Size& s) { return s.is_number() && s.number == -1; });
  const bool zeros =
      std::any_of(wanted.begin(), wanted.end(), [](const Size& s) { return !s.is_number() || s.number == 0; });
  std::map<std::string, Attribute> attrs;
  if (zeros && !rest) attrs["allowzero"] = int64_t{1};
  return emit("Reshape", {t, sizes(wanted)}, std::move(attrs));
}

}  // namespace ingot
