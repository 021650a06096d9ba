#include "matcher/pattern.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "ops/op.h"
#include "passes/constants.h"

namespace ingot::match {

struct Pattern::Body {
  enum Kind { kValue, kConstant, kScalar, kOp, kProduct, kSum, kInverse, kAnyOf, kNamed } kind;
  std::string name;                    // kValue, kConstant, kNamed; kOp: of the node
  NumberPattern number = 0.0;          // kScalar, kProduct, kSum
  std::vector<std::string> operators;  // kOp
  std::vector<Pattern> parts;
};

namespace {

using Body = Pattern::Body;

Pattern make(Body body) { return Pattern(std::make_shared<const Body>(std::move(body))); }

// One factor of a product or term of a sum.
struct Part {
  TensorId tensor;
  bool inverse;
};

// A tree of multiplications (or additions) taken apart.
struct Parts {
  double number;  // product or sum of the scalar constants
  std::vector<Part> parts;
  std::vector<Editor::Handle> nodes;
};

class Matcher {
 public:
  explicit Matcher(const Editor& e) : e_(e) {}
  using Next = std::function<bool(Match&)>;

  // Matches p against t and goes on with `next`; when `next` fails, tries the other ways p fits.
  bool match(const Pattern& p, TensorId t, Match& m, const Next& next) {
    switch (p->kind) {
      case Body::kValue:
        return bind(p->name, t, m, next);
      case Body::kConstant:
        return e_.is_constant(t) && bind(p->name, t, m, next);
      case Body::kScalar:
        return match_scalar(p->number, t, m, next);
      case Body::kOp:
        return match_op(p, t, m, next);
      case Body::kProduct:
      case Body::kSum:
        return match_parts(p, t, m, next);
      case Body::kInverse:
        return false;  // only as a part
      case Body::kAnyOf:
        for (const Pattern& alternative : p->parts)
          if (match(alternative, t, m, next)) return true;
        return false;
      case Body::kNamed:
        return bind(p->name, t, m, [&](Match& bound) { return match(p->parts[0], t, bound, next); });
    }
    return false;
  }

 private:
  bool bind(const std::string& name, TensorId t, Match& m, const Next& next) {
    auto it = m.values.find(name);
    if (it != m.values.end()) return it->second == t && next(m);
    Match with = m;
    with.values[name] = t;
    if (!next(with)) return false;
    m = std::move(with);
    return true;
  }

  bool check(const NumberPattern& wanted, double found, Match& m, const Next& next) {
    if (wanted.name.empty()) return close(wanted.value, found) && next(m);
    Match with = m;
    with.numbers[wanted.name] = found;
    if (!next(with)) return false;
    m = std::move(with);
    return true;
  }

  bool match_scalar(const NumberPattern& wanted, TensorId t, Match& m, const Next& next) {
    auto found = t == kNoTensor ? std::nullopt : scalar_value(e_.info(t));
    return found && check(wanted, *found, m, next);
  }

  bool match_op(const Pattern& p, TensorId t, Match& m, const Next& next) {
    Editor::Handle h = e_.producer(t);
    if (h == Editor::kNone) return false;
    const Node& n = e_.node(h);
    if (!n.domain.empty() || std::find(p->operators.begin(), p->operators.end(), n.op) == p->operators.end())
      return false;
    if (n.inputs.size() < p->parts.size() || n.outputs[0] != t) return false;
    Match with = m;
    with.nodes.push_back(h);
    if (!p->name.empty()) with.node_names[p->name] = h;
    std::vector<size_t> order(p->parts.size());
    for (size_t i = 0; i < order.size(); i++) order[i] = i;
    do {
      Match attempt = with;
      if (match_operands(p, n, order, 0, attempt, next)) {
        m = std::move(attempt);
        return true;
      }
    } while (traits(n).commutative && std::next_permutation(order.begin(), order.end()));
    return false;
  }

  bool match_operands(const Pattern& p, const Node& n, const std::vector<size_t>& order, size_t i, Match& m,
                      const Next& next) {
    if (i == order.size()) return next(m);
    TensorId t = n.inputs[order[i]];
    return t != kNoTensor &&
           match(p->parts[i], t, m, [&](Match& rest) { return match_operands(p, n, order, i + 1, rest, next); });
  }

  static constexpr size_t kMostParts = 8, kMostNodes = 32;  // more than any formula has: chains may be endless
  // t = number * part * part / part ..., or number + part - part ...; a value that others read too is one part.
  void take_apart(TensorId t, bool is_sum, bool inverse, bool top, Parts& out) {
    if (auto c = scalar_value(e_.info(t))) {
      out.number = is_sum ? out.number + (inverse ? -*c : *c) : inverse ? out.number / *c : out.number * *c;
      return;
    }
    Editor::Handle h = e_.producer(t);
    const Node* n = h == Editor::kNone ? nullptr : &e_.node(h);
    if (!n || !n->domain.empty() || (!top && !e_.single_use(t)) || out.parts.size() > kMostParts ||
        out.nodes.size() > kMostNodes) {
      out.parts.push_back({t, inverse});
      return;
    }
    auto both = [&](bool second) {
      out.nodes.push_back(h);
      take_apart(n->inputs[0], is_sum, inverse, false, out);
      take_apart(n->inputs[1], is_sum, second, false, out);
    };
    if (n->op == (is_sum ? "Add" : "Mul")) {
      both(inverse);
    } else if (n->op == (is_sum ? "Sub" : "Div")) {
      both(!inverse);
    } else if (n->op == "Neg") {
      out.nodes.push_back(h);
      if (!is_sum) out.number = -out.number;
      take_apart(n->inputs[0], is_sum, is_sum ? !inverse : inverse, false, out);
    } else if (n->op == "Reciprocal" && !is_sum) {
      out.nodes.push_back(h);
      take_apart(n->inputs[0], is_sum, !inverse, false, out);
    } else {
      out.parts.push_back({t, inverse});
    }
  }

  bool match_parts(const Pattern& p, TensorId t, Match& m, const Next& next) {
    const bool is_sum = p->kind == Body::kSum;
    Parts found{is_sum ? 0.0 : 1.0, {}, {}};
    take_apart(t, is_sum, false, e_.producer(t) == m.root, found);
    if (found.parts.size() != p->parts.size()) return false;
    Match with = m;
    with.nodes.insert(with.nodes.end(), found.nodes.begin(), found.nodes.end());
    std::vector<size_t> order(p->parts.size());
    for (size_t i = 0; i < order.size(); i++) order[i] = i;
    return check(p->number, found.number, with, [&](Match& checked) {
      do {
        Match attempt = checked;
        if (match_part(p, found, order, 0, attempt, next)) {
          m = attempt;
          checked = std::move(attempt);
          return true;
        }
      } while (std::next_permutation(order.begin(), order.end()));
      return false;
    });
  }

  bool match_part(const Pattern& p, const Parts& found, const std::vector<size_t>& order, size_t i, Match& m,
                  const Next& next) {
    if (i == order.size()) return next(m);
    const Part& part = found.parts[order[i]];
    const Pattern& wanted = p->parts[i];
    const bool inverse = wanted->kind == Body::kInverse;
    return part.inverse == inverse && match(inverse ? wanted->parts[0] : wanted, part.tensor, m, [&](Match& rest) {
             return match_part(p, found, order, i + 1, rest, next);
           });
  }

  const Editor& e_;
};

}  // namespace

bool close(double a, double b) { return a == b || std::fabs(a - b) <= 1e-4 * std::max(std::fabs(a), std::fabs(b)); }

Pattern value(const std::string& name) { return make({.kind = Body::kValue, .name = name}); }
Pattern constant(const std::string& name) { return make({.kind = Body::kConstant, .name = name}); }
Pattern scalar(NumberPattern number) { return make({.kind = Body::kScalar, .number = std::move(number)}); }
Pattern op(const std::string& operators, std::vector<Pattern> operands) {
  return op(operators, std::move(operands), "");
}
Pattern op(const std::string& operators, std::vector<Pattern> operands, const std::string& node_name) {
  Body body{.kind = Body::kOp, .name = node_name, .parts = std::move(operands)};
  for (size_t at = 0; at <= operators.size();) {
    size_t bar = std::min(operators.find('|', at), operators.size());
    body.operators.push_back(operators.substr(at, bar - at));
    at = bar + 1;
  }
  return make(std::move(body));
}
Pattern product(NumberPattern coefficient, std::vector<Pattern> factors) {
  return make({.kind = Body::kProduct, .number = std::move(coefficient), .parts = std::move(factors)});
}
Pattern sum(NumberPattern constant, std::vector<Pattern> terms) {
  return make({.kind = Body::kSum, .number = std::move(constant), .parts = std::move(terms)});
}
Pattern inverse(Pattern p) { return make({.kind = Body::kInverse, .parts = {std::move(p)}}); }
Pattern any_of(std::vector<Pattern> parts) { return make({.kind = Body::kAnyOf, .parts = std::move(parts)}); }
Pattern named(const std::string& name, Pattern p) {
  return make({.kind = Body::kNamed, .name = name, .parts = {std::move(p)}});
}

std::optional<Match> find(const Editor& e, const Pattern& p, Editor::Handle root) {
  Match m;
  m.root = root;
  const Node& n = e.node(root);
  if (n.outputs.empty() || n.outputs[0] == kNoTensor) return std::nullopt;
  if (!Matcher(e).match(p, n.outputs[0], m, [](Match&) { return true; })) return std::nullopt;
  std::sort(m.nodes.begin(), m.nodes.end());
  m.nodes.erase(std::unique(m.nodes.begin(), m.nodes.end()), m.nodes.end());
  return m;
}

std::vector<std::string> root_operators(const Pattern& p) {
  switch (p->kind) {
    case Body::kOp:
      return p->operators;
    case Body::kProduct:
      return {"Mul", "Div", "Neg", "Reciprocal"};
    case Body::kSum:
      return {"Add", "Sub", "Neg"};
    case Body::kNamed:
      return root_operators(p->parts[0]);
    case Body::kAnyOf: {
      std::vector<std::string> out;
      for (const Pattern& part : p->parts)
        for (std::string& name : root_operators(part)) out.push_back(std::move(name));
      return out;
    }
    default:
      return {};
  }
}

std::string used_elsewhere(const Editor& e, const std::vector<Editor::Handle>& nodes, Editor::Handle root) {
  auto inside = [&](Editor::Handle h) { return std::find(nodes.begin(), nodes.end(), h) != nodes.end(); };
  for (Editor::Handle h : nodes) {
    if (h == root) continue;
    for (TensorId t : e.node(h).outputs) {
      if (t == kNoTensor) continue;
      if (e.is_output(t)) return "'" + e.graph.tensor(t).name + "' inside it is an output of the graph";
      for (Editor::Handle user : e.consumers(t))
        if (!inside(user)) return "'" + e.graph.tensor(t).name + "' inside it is also read by " + e.node(user).label();
    }
  }
  return "";
}

std::string used_elsewhere(const Editor& e, const Match& m) { return used_elsewhere(e, m.nodes, m.root); }

}  // namespace ingot::match
