// Attention(Q, K, V, mask) = softmax(scale Q K^T + mask) V for each batch and head.
//
// The scale may stand anywhere (on Q, on K, on both as square roots, on the product; as Mul or Div). The mask is added,
// or put in by Where. Transposes between [batch, seq, heads, dim] and [batch, heads, seq, dim] become layouts of the
// fused node: "bshd" and "bhsd"; K may also come transposed, "bhds". A row that is masked completely, for which softmax
// gives NaN, becomes zero with nan_to_zero: torch says so by IsNaN, ONNX by the largest score. Heads of K and V that
// are repeated to match those of Q (grouped-query attention) are read where they are: K and V then have fewer heads.
#include <cmath>
#include <limits>

#include "kernels/number.h"
#include "matcher/fusion.h"
#include "passes/constants.h"
#include "passes/simplify.h"

namespace ingot {
namespace {

using Handle = Editor::Handle;
using Perm = std::vector<int64_t>;

constexpr double kMaskedOut = -1e30;  // at or below, adding it to a score is the same as putting it in

struct Site {
  Handle qk = Editor::kNone;
  TensorId q = kNoTensor, k = kNoTensor, v = kNoTensor;
  std::string layout_q = "bhsd", layout_k = "bhds", layout_v = "bhsd", layout_out = "bhsd";
  double scale = 1;
  TensorId mask = kNoTensor;
  // Where(condition, score, fill) or, inverted, Where(condition, fill, score)
  TensorId condition = kNoTensor;
  bool condition_inverted = false;
  double fill = 0;
  bool nan_to_zero = false;
  std::vector<Handle> nodes;  // that disappear: from the product with V back to Q K^T
};

// A constant number, of 16 bits as well.
std::optional<double> scalar_of(const TensorInfo& info) {
  if (info.constant && info.constant->elements() == 1) {
    if (info.constant->dtype == DType::F16) return kernel::widen(info.constant->as<kernel::F16>()[0]);
    if (info.constant->dtype == DType::BF16) return kernel::widen(info.constant->as<kernel::BF16>()[0]);
  }
  return scalar_value(info);
}

// Scalar that multiplies the other operand of n: Mul(x, c), Mul(c, x), Div(x, c). x is set.
std::optional<double> scalar_factor(const Editor& e, const Node& n, TensorId& x) {
  if (n.inputs.size() != 2 || (!n.is("Mul") && !n.is("Div"))) return std::nullopt;
  auto b = scalar_of(e.info(n.inputs[1]));
  if (b && *b != 0) {
    x = n.inputs[0];
    return n.is("Mul") ? *b : 1 / *b;
  }
  auto a = scalar_of(e.info(n.inputs[0]));
  if (!a || n.is("Div")) return std::nullopt;
  x = n.inputs[1];
  return a;
}

// Looks through scalar factors and transposes of one operand: t = factor * Transpose(source, perm).
TensorId source_of(const Editor& e, TensorId t, Perm& perm, double& factor) {
  while (const Node* n = e.maker(t)) {
    TensorId x = kNoTensor;
    if (auto c = scalar_factor(e, *n, x)) {
      if (!same_shape(e.info(x), e.info(t))) break;
      factor *= *c;
    } else if (n->is("Transpose")) {
      Perm p = transpose_perm(e, *n);
      if (p.size() != perm.size()) break;
      perm = compose(p, perm);
      x = n->inputs[0];
    } else {
      break;
    }
    t = x;
  }
  return t;
}

// Only the factors, where the transposes on the way are none a layout can say.
TensorId without_scale(const Editor& e, TensorId t, double& factor) {
  TensorId x = kNoTensor;
  while (const Node* n = e.maker(t)) {
    auto c = scalar_factor(e, *n, x);
    if (!c || !same_shape(e.info(x), e.info(t))) break;
    factor *= *c;
    t = x;
  }
  return t;
}

struct Layout {
  Perm perm;  // from the source to what the product reads
  const char* name;
};

// The operand of a product, and the layout its source has.
void read_operand(const Editor& e, TensorId t, const std::vector<Layout>& layouts, TensorId& source,
                  std::string& layout, double& scale) {
  Perm perm = {0, 1, 2, 3};
  double factor = 1;
  TensorId far = source_of(e, t, perm, factor);
  for (const Layout& l : layouts)
    if (perm == l.perm) {
      source = far;
      layout = l.name;
      scale *= factor;
      return;
    }
  source = without_scale(e, t, scale);
  layout = layouts[0].name;
}

const std::vector<Layout> kQueryLayouts = {{{0, 1, 2, 3}, "bhsd"}, {{0, 2, 1, 3}, "bshd"}};
const std::vector<Layout> kKeyLayouts = {{{0, 1, 2, 3}, "bhds"}, {{0, 1, 3, 2}, "bhsd"}, {{0, 2, 3, 1}, "bshd"}};

size_t rank(const Editor& e, TensorId t) { return t != kNoTensor && e.info(t).shape ? e.info(t).shape->size() : 0; }

// softmax -> [Where(IsNaN(p), 0, p)]; p becomes the softmax.
bool skip_nan_to_zero(const Editor& e, TensorId& p, std::vector<Handle>& nodes) {
  const Node* where = e.maker(p, "Where");
  const Node* nan = where ? e.maker(where->inputs[0], "IsNaN") : nullptr;
  if (!nan || nan->inputs[0] != where->inputs[2] || scalar_of(e.info(where->inputs[1])) != 0.0) return false;
  nodes.push_back(e.producer(p));
  nodes.push_back(e.producer(where->inputs[0]));
  p = where->inputs[2];
  return true;
}

// Where(Equal(ReduceMax(scores), -inf), 0, softmax(scores)): rows of which every key is masked, said exactly.
bool skip_masked_rows(const Editor& e, TensorId& p, std::vector<Handle>& nodes) {
  const Node* where = e.maker(p, "Where");
  const Node* equal = where ? e.maker(where->inputs[0], "Equal") : nullptr;
  const Node* softmax = equal ? e.maker(where->inputs[2], "Softmax") : nullptr;
  if (!softmax || scalar_of(e.info(where->inputs[1])) != 0.0) return false;
  const size_t side = e.maker(equal->inputs[0], "ReduceMax") ? 0 : 1;
  const Node* largest = e.maker(equal->inputs[side], "ReduceMax");
  if (!largest || largest->inputs[0] != softmax->inputs[0] || !largest->get_int("keepdims", 1)) return false;
  if (scalar_of(e.info(equal->inputs[1 - side])) != -std::numeric_limits<double>::infinity()) return false;
  const auto axes = largest->has_input(1) ? integer_values(e.info(largest->inputs[1])) : std::nullopt;
  const auto last = static_cast<int64_t>(rank(e, p)) - 1;
  if (!axes || axes->size() != 1 || (axes->front() != -1 && axes->front() != last)) return false;
  for (TensorId t : {p, where->inputs[0], equal->inputs[side]}) nodes.push_back(e.producer(t));
  p = where->inputs[2];
  return true;
}

// Does t come from a product through scales and masks only?
bool leads_to_product(const Editor& e, TensorId t, int depth = 0) {
  const Node* n = e.maker(t);
  if (!n || depth > 4) return false;
  if (n->is("MatMul")) return true;
  TensorId x = kNoTensor;
  if (scalar_factor(e, *n, x)) return leads_to_product(e, x, depth + 1);
  const size_t first = n->is("Add") ? 0 : n->is("Where") ? 1 : 2;
  return first < 2 && n->inputs.size() == first + 2 &&
         (leads_to_product(e, n->inputs[first], depth + 1) || leads_to_product(e, n->inputs[first + 1], depth + 1));
}

// One step from the softmax back towards Q K^T, over a scale, an added mask or a Where. Returns why it cannot be made.
std::string step_back(const Editor& e, TensorId& s, Site& site) {
  const Node& n = *e.maker(s);
  TensorId next = kNoTensor;
  if (auto c = scalar_factor(e, n, next)) {
    site.scale *= *c;
  } else if (n.is("Add") && leads_to_product(e, s)) {
    const size_t scores = leads_to_product(e, n.inputs[0]) ? 0 : 1;
    if (site.mask != kNoTensor) return "two masks are added";
    site.mask = n.inputs[1 - scores];
    next = n.inputs[scores];
  } else if (n.is("Where") && leads_to_product(e, s)) {
    const size_t scores = leads_to_product(e, n.inputs[1]) ? 1 : 2;
    auto fill = scalar_of(e.info(n.inputs[3 - scores]));
    if (!fill || *fill > kMaskedOut) return "the Where on the scores does not put in minus infinity";
    if (site.condition != kNoTensor) return "two masks are put in by Where";
    site.condition = n.inputs[0];
    site.condition_inverted = scores == 2;
    site.fill = *fill;
    next = n.inputs[scores];
  } else {
    return "between the product and the softmax stands " + n.label();
  }
  if (!n.is("Mul") && !n.is("Div") && site.scale != 1) return "a scale is applied after the mask";
  if (!same_shape(e.info(next), e.info(s))) return "the mask broadcasts the scores to another shape";
  s = next;
  return "";
}

std::string read_scores(const Editor& e, TensorId s, Site& site) {
  while (true) {
    Handle h = e.producer(s);
    if (h == Editor::kNone) return "the scores are not a product of two tensors";
    site.nodes.push_back(h);
    if (e.node(h).is("MatMul")) {
      site.qk = h;
      return "";
    }
    if (std::string why = step_back(e, s, site); !why.empty()) return why;
  }
}

// Reshape(Expand(Reshape(k))) that repeats each head of k [B, H, S, D]: k. Otherwise t.
TensorId before_repeat(const Editor& e, TensorId t) {
  const Node* merge = e.maker(t, "Reshape");
  const Node* expand = merge ? e.maker(merge->inputs[0], "Expand") : nullptr;
  const Node* split = expand ? e.maker(expand->inputs[0], "Reshape") : nullptr;
  if (!split || rank(e, split->inputs[0]) != 4 || rank(e, split->outputs[0]) != 5 || rank(e, merge->inputs[0]) != 5)
    return t;
  const Shape &k = *e.info(split->inputs[0]).shape, &five = *e.info(expand->outputs[0]).shape, &out = *e.info(t).shape;
  const bool repeats = same_shape(*e.info(split->outputs[0]).shape, {k[0], k[1], Dim(1), k[2], k[3]}) &&
                       same_shape(five, {k[0], k[1], five[2], k[2], k[3]}) &&
                       same_shape(out, {k[0], k[1] * five[2], k[2], k[3]});
  return repeats ? split->inputs[0] : t;
}

// Reads K or V, looking through repeated heads and what stands before them.
void read_key_or_value(const Editor& e, TensorId t, const std::vector<Layout>& layouts, TensorId& source,
                       std::string& layout, double& scale) {
  read_operand(e, t, layouts, source, layout, scale);
  TensorId few = layout == "bhsd" ? before_repeat(e, source) : source;
  if (few != source) read_operand(e, few, kQueryLayouts, source, layout, scale);
}

Dim axis_of(const Editor& e, TensorId t, const std::string& layout, char axis) {
  return (*e.info(t).shape)[layout.find(axis)];
}

std::string check_shapes(const Editor& e, const Site& s) {
  const DType dtype = e.info(s.q).dtype;
  for (TensorId t : {s.q, s.k, s.v}) {
    if (rank(e, t) != 4) return "Q, K and V are not of rank 4";
    if (e.info(t).dtype != dtype) return "Q, K and V are of several types";
  }
  if (dtype != DType::F32 && dtype != DType::F16 && dtype != DType::BF16) return "Q, K and V are not f32, f16 or bf16";
  auto dim = [&](TensorId t, const std::string& layout, char axis) { return axis_of(e, t, layout, axis); };
  const Dim heads = dim(s.k, s.layout_k, 'h'), q_heads = dim(s.q, s.layout_q, 'h');
  if (!(dim(s.q, s.layout_q, 'b') == dim(s.k, s.layout_k, 'b')) ||
      !(dim(s.k, s.layout_k, 'b') == dim(s.v, s.layout_v, 'b')))
    return "Q, K and V are not known to have the same batch size";
  if (!(heads == dim(s.v, s.layout_v, 'h'))) return "K and V are not known to have the same number of heads";
  const bool grouped =
      heads.is_const() && q_heads.is_const() && heads.value() > 0 && q_heads.value() % heads.value() == 0;
  if (!(heads == q_heads) && !grouped) return "the heads of Q are not a multiple of those of K";
  if (s.mask != kNoTensor && (e.info(s.mask).dtype != dtype || rank(e, s.mask) > 4))
    return "the mask is not of Q's type";
  if (s.condition != kNoTensor && (e.info(s.condition).dtype != DType::Bool || rank(e, s.condition) > 4))
    return "the condition of the mask is not bool";
  if (s.condition != kNoTensor && dtype != DType::F32 && (!std::isinf(s.fill) || s.mask != kNoTensor))
    return "a mask of 16-bit floats is put in and is not minus infinity";
  return "";
}

// 0, 1, 2, ..., as a row or a column.
bool counts_up(const Editor& e, TensorId t) {
  while (e.maker(t, "Reshape") || e.maker(t, "Unsqueeze")) t = e.maker(t)->inputs[0];
  const Node* range = e.maker(t, "Range");
  return range && scalar_of(e.info(range->inputs[0])) == 0.0 && scalar_of(e.info(range->inputs[2])) == 1.0;
}

// A fixed mask: row i sees columns up to i.
bool is_lower_triangle(const Editor& e, TensorId mask, const Dim& rows, const Dim& columns) {
  if (!e.is_constant(mask) || !(rows == columns) || !rows.is_const()) return false;
  const Constant& c = *e.info(mask).constant;
  const auto n = static_cast<size_t>(rows.value());
  if (c.elements() != static_cast<int64_t>(n * n) || c.dims.size() < 2 || c.dims.back() != rows.value() || n < 2)
    return false;
  for (size_t i = 0; i < n * n; i++) {
    const bool sees = i % n <= i / n;
    if (c.dtype == DType::Bool && (c.as<uint8_t>()[i] != 0) != sees) return false;
    if (c.dtype == DType::F32 && (sees ? c.as<float>()[i] != 0 : c.as<float>()[i] > kMaskedOut)) return false;
  }
  return true;
}

enum class Causal { kNo, kFromStart, kFromEnd };  // row i sees columns up to i, or up to i + columns - rows

// The scalar that t is the sum of 0, 1, 2, ... and; nothing where it is not known, or t no such sum.
std::optional<Dim> counts_up_from(const Editor& e, TensorId t) {
  if (counts_up(e, t)) return Dim(0);
  const Node* add = e.maker(t, "Add");
  for (size_t i = 0; add && i < 2; i++) {
    const auto& first = e.info(add->inputs[1 - i]).values;
    if (first && first->size() == 1 && counts_up(e, add->inputs[i])) return first->at(0);
  }
  return std::nullopt;
}

// key <= query, both counted up: the causal mask of lengths that only run time tells. After a past, queries are counted
// from its length on.
Causal compares_positions(const Editor& e, TensorId mask, const Dim& rows, const Dim& columns) {
  const Node* n = e.maker(mask, "LessOrEqual");
  if (!n || !counts_up(e, n->inputs[0])) return Causal::kNo;
  const std::optional<Dim> first = counts_up_from(e, n->inputs[1]);
  const auto &keys = e.info(n->inputs[0]).shape, &queries = e.info(n->inputs[1]).shape;
  if (!first || !keys || !queries || !same_shape(padded_shape(*keys, 2), {Dim(1), columns}) ||
      !same_shape(*queries, {rows, Dim(1)}))
    return Causal::kNo;
  return first->is(0) ? Causal::kFromStart : *first + rows == columns ? Causal::kFromEnd : Causal::kNo;
}

Causal causal_kind(const Editor& e, TensorId mask, const Dim& rows, const Dim& columns) {
  if (const Causal kind = compares_positions(e, mask, rows, columns); kind != Causal::kNo) return kind;
  return is_lower_triangle(e, mask, rows, columns) ? Causal::kFromStart : Causal::kNo;
}

// One mask operand: the condition as it is where it stands for minus infinity, otherwise as numbers to add.
TensorId mask_operand(Editor& e, const Node& at, const Site& s) {
  if (s.condition == kNoTensor) return s.mask;
  TensorId keep = s.condition;
  const auto shape = e.info(keep).shape;
  if (std::isinf(s.fill) && s.mask == kNoTensor)
    return s.condition_inverted ? e.emit(at, "Not", {keep}, {}, DType::Bool, shape) : keep;
  TensorId zero = e.add_constant(at.name + "/zero", filled(0.f));
  TensorId fill = e.add_constant(at.name + "/fill", filled(static_cast<float>(s.fill)));
  TensorId added =
      e.emit(at, "Where", s.condition_inverted ? std::vector{keep, fill, zero} : std::vector{keep, zero, fill}, {},
             DType::F32, shape);
  if (s.mask == kNoTensor) return added;
  return e.emit(at, "Add", {added, s.mask}, {}, DType::F32, e.info(e.node(s.qk).outputs[0]).shape);
}

std::string find_site(const Editor& e, Handle root, Site& site) {
  const Node& pv = e.node(root);
  TensorId p = pv.inputs[0];
  site.nodes = {root};
  site.nan_to_zero = skip_nan_to_zero(e, p, site.nodes) || skip_masked_rows(e, p, site.nodes);
  const Node* softmax = e.maker(p, "Softmax");
  if (!softmax) return "no softmax";
  const auto r = static_cast<int64_t>(rank(e, p));
  if (r != 4) return "the scores are not of rank 4";
  if (int64_t axis = softmax->get_int("axis", -1); axis != -1 && axis != r - 1)
    return "the softmax is not over the last axis";
  site.nodes.push_back(e.producer(p));
  if (std::string why = read_scores(e, softmax->inputs[0], site); !why.empty()) return why;
  if (std::string why = match::used_elsewhere(e, site.nodes, root); !why.empty()) return why;
  const Node& qk = e.node(site.qk);
  if (rank(e, qk.inputs[0]) != 4 || rank(e, qk.inputs[1]) != 4 || rank(e, pv.inputs[1]) != 4)
    return "Q, K and V are not of rank 4";
  read_operand(e, qk.inputs[0], kQueryLayouts, site.q, site.layout_q, site.scale);
  read_key_or_value(e, qk.inputs[1], kKeyLayouts, site.k, site.layout_k, site.scale);
  double on_values = 1;  // a scale of V is left where it is
  read_key_or_value(e, pv.inputs[1], kQueryLayouts, site.v, site.layout_v, on_values);
  if (on_values != 1) {
    site.v = pv.inputs[1];
    site.layout_v = "bhsd";
  }
  return check_shapes(e, site);
}

// The node that makes K or V of a past and what follows it, along the sequence; null where none does.
const Node* joins_past(const Editor& e, TensorId x, const std::string& layout) {
  const Node* concat = e.maker(x);
  if (!concat || !concat->is("Concat") || concat->inputs.size() != 2) return nullptr;
  const int64_t axis = concat->get_int("axis", 0);
  return (axis < 0 ? axis + 4 : axis) == static_cast<int64_t>(layout.find('s')) ? concat : nullptr;
}

void fuse(Editor& e, Handle root, Site& s) {
  const Node at = e.node(root);
  const Dim rows = axis_of(e, s.q, s.layout_q, 's'), columns = axis_of(e, s.k, s.layout_k, 's');
  TensorId mask = mask_operand(e, at, s);
  const Causal causal = mask == kNoTensor ? Causal::kNo : causal_kind(e, mask, rows, columns);
  Node fused{.op = "Attention", .domain = "ingot", .inputs = {s.q, s.k, s.v}};
  if (causal != Causal::kNo) mask = kNoTensor;
  const Node *k = joins_past(e, s.k, s.layout_k), *v = joins_past(e, s.v, s.layout_v);
  if (k && v && s.layout_k.back() == 'd')
    fused.inputs = {s.q, k->inputs[1], v->inputs[1], mask, k->inputs[0], v->inputs[0]};
  else if (mask != kNoTensor)
    fused.inputs.push_back(mask);
  Handle replaced = root;
  std::vector<Handle> nodes = s.nodes;
  // Transpose(attention) back to [batch, seq, heads, dim] is a layout of the result.
  if (e.single_use(at.outputs[0])) {
    Handle user = e.consumers(at.outputs[0])[0];
    if (e.node(user).is("Transpose") && transpose_perm(e, e.node(user)) == Perm{0, 2, 1, 3}) {
      s.layout_out = "bshd";
      replaced = user;
      nodes.push_back(user);
    }
  }
  fused.attrs = {{"scale", static_cast<float>(s.scale)},
                 {"layout_q", s.layout_q},
                 {"layout_k", s.layout_k},
                 {"layout_v", s.layout_v},
                 {"layout_out", s.layout_out},
                 {"causal", int64_t{causal != Causal::kNo}},
                 {"nan_to_zero", int64_t{s.nan_to_zero}}};
  if (causal == Causal::kFromEnd) fused.attrs["causal_end"] = int64_t{1};
  fused.origins = joined_origins(e, nodes);
  e.replace(replaced, std::move(fused));
  for (Handle h : nodes)
    if (h != replaced) e.erase(h);
}

void run(Editor& e, const Explain& explain) {
  for (Handle h = 0, end = e.size(); h < end; h++) {
    if (!e.alive(h) || !e.node(h).is("MatMul")) continue;
    Site site;
    const std::string label = e.node(h).label();
    std::string why = find_site(e, h, site);
    if (why == "no softmax") continue;
    if (why.empty()) fuse(e, h, site);
    if (explain) explain(label, why.empty() ? "matched" : why);
  }
}

}  // namespace

void register_attention(FusionRegistry& registry) {
  registry.add({.name = "attention",
                .formula = "softmax(scale Q K^T + mask) V -> ingot.Attention(Q, K, V, mask, past K, past V)",
                .pass = run});
}

}  // namespace ingot
