#include "graph_text.h"

#include <cctype>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <sstream>
#include <string_view>

#include "base/error.h"

namespace ingot::test {
namespace {

class Reader {
 public:
  Reader(Graph& g, const std::string& text) : g_(g), text_(text) {}

  bool done() { return skip() == '\0'; }
  bool take(const std::string& what) {
    skip();
    if (text_.compare(at_, what.size(), what) != 0) return false;
    at_ += what.size();
    return true;
  }
  void need(const std::string& what) {
    if (!take(what)) invalid_model("expected '{}' at '{}'", what, text_.substr(at_, 30));
  }
  std::string word() {
    skip();
    size_t start = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || std::strchr("_./", text_[at_])))
      at_++;
    if (at_ == start) invalid_model("expected a name at '{}'", text_.substr(at_, 30));
    return text_.substr(start, at_ - start);
  }
  Dim dim() {
    if (std::isdigit(static_cast<unsigned char>(skip()))) return std::stoll(word());
    return Dim::symbol(word());
  }

  // x: f32[2, seq]
  std::pair<std::string, TensorInfo> declaration() {
    std::string name = word();
    need(":");
    TensorInfo info;
    info.dtype = dtype_from_name(word()).value();
    info.shape = Shape{};
    need("[");
    while (!take("]")) {
      info.shape->push_back(dim());
      take(",");
    }
    return {name, info};
  }

  // a, b = call
  std::vector<TensorId> statement() {
    std::vector<std::string> names = {word()};
    while (take(",")) names.push_back(word());
    need("=");
    return call(word(), names);
  }

 private:
  char skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) at_++;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  std::vector<TensorId> call(const std::string& op, const std::vector<std::string>& results) {
    Node n;
    const size_t dot = op.find('.');
    n.domain = dot == std::string::npos ? "" : op.substr(0, dot);
    n.op = dot == std::string::npos ? op : op.substr(dot + 1);
    need("(");
    while (!take(")")) {
      n.inputs.push_back(operand());
      take(",");
    }
    if (take("{")) read_attributes(n);
    for (const std::string& r : results) n.outputs.push_back(g_.add_tensor(r));
    n.name = results[0];
    n.origins = {results[0]};
    g_.nodes.push_back(n);
    return n.outputs;
  }

  void read_attributes(Node& n) {
    while (!take("}")) {
      std::string key = word();
      need(":");
      n.attrs[key] = attribute();
      take(",");
    }
  }

  Attribute attribute() {
    if (take("\"")) {
      size_t end = text_.find('"', at_);
      std::string s = text_.substr(at_, end - at_);
      at_ = end + 1;
      return s;
    }
    if (take("[")) {
      std::vector<int64_t> ints;
      std::vector<std::string> strings;
      while (!take("]")) {
        Attribute item = attribute();
        if (auto* i = std::get_if<int64_t>(&item)) ints.push_back(*i);
        if (auto* s = std::get_if<std::string>(&item)) strings.push_back(*s);
        take(",");
      }
      if (!strings.empty()) return strings;
      return ints;
    }
    skip();
    const char* start = text_.c_str() + at_;
    bool integer;
    double v = number(integer);
    if (integer) return static_cast<int64_t>(std::strtoll(start, nullptr, 10));  // exact beyond 2^53
    return static_cast<float>(v);
  }

  double number(bool& integer) {
    skip();
    const char* start = text_.c_str() + at_;
    char* end = nullptr;
    double v = std::strtod(start, &end);
    integer = std::string_view(start, static_cast<size_t>(end - start)).find_first_of(".enf") == std::string::npos;
    at_ += static_cast<size_t>(end - start);
    return v;
  }

  TensorId operand() {
    char c = skip();
    if (c == '[') {
      auto ints = std::get<std::vector<int64_t>>(attribute());
      return g_.add_constant(fresh(), make_constant(DType::I64, {static_cast<int64_t>(ints.size())}, ints));
    }
    if (c == '-' || std::isdigit(static_cast<unsigned char>(c))) {
      bool integer;
      return g_.add_constant(fresh(),
                             make_constant(DType::F32, {}, std::vector<float>{static_cast<float>(number(integer))}));
    }
    std::string name = word();
    if (name == "_") return kNoTensor;
    if (name == "true" || name == "false")
      return g_.add_constant(fresh(), make_constant(DType::Bool, {}, std::vector<uint8_t>{name == "true"}));
    if (skip() == '(') return call(name, {fresh()})[0];
    TensorId t = g_.find_tensor(name);
    if (t == kNoTensor) invalid_model("'{}' is not known", name);
    return t;
  }

  // Counted, not derived from the graph: a call names its result before its operands exist.
  std::string fresh() { return "%" + std::to_string(fresh_++); }

  Graph& g_;
  const std::string& text_;
  size_t fresh_ = 0;
  size_t at_ = 0;
};

template <class T>
std::string list(const Constant& c) {
  std::string out;
  for (T v : c.as<T>()) out += (out.empty() ? "" : ", ") + fmt::format("{}", v);
  return out;
}

std::string print(const Attribute& a) {
  if (auto* i = std::get_if<int64_t>(&a)) return std::to_string(*i);
  if (auto* f = std::get_if<float>(&a)) return fmt::format("{}", *f) + (*f == std::floor(*f) ? ".0" : "");
  if (auto* s = std::get_if<std::string>(&a)) return "\"" + *s + "\"";
  std::string out;
  if (auto* v = std::get_if<std::vector<int64_t>>(&a))
    for (int64_t i : *v) out += (out.empty() ? "" : ", ") + std::to_string(i);
  if (auto* v = std::get_if<std::vector<std::string>>(&a))
    for (const auto& s : *v) out += (out.empty() ? "" : ", ") + ("\"" + s + "\"");
  return "[" + out + "]";
}

}  // namespace

void declare_input(Graph& g, const std::string& text) {
  auto [name, info] = Reader(g, text).declaration();
  g.inputs.push_back(g.add_tensor(name, info));
}

void declare_weight(Graph& g, const std::string& text) {
  auto [name, info] = Reader(g, text).declaration();
  std::vector<int64_t> dims = numbers(*info.shape);
  std::byte* data = nullptr;
  ConstantPtr c = make_constant(info.dtype, dims, &data);
  // Different in every weight, so that two of them are not merged; positive, so that they serve as variances.
  uint32_t seed = 1;
  for (char ch : name) seed = seed * 31 + static_cast<unsigned char>(ch);
  if (info.dtype == DType::F32)
    for (int64_t i = 0; i < c->elements(); i++) {
      seed = seed * 1664525 + 1013904223;
      reinterpret_cast<float*>(data)[i] = 0.5f + static_cast<float>(seed >> 9) / static_cast<float>(1 << 23);
    }
  else
    for (size_t i = 0; i < c->bytes.size(); i++) data[i] = std::byte{1};
  g.add_constant(name, c);
}

void parse_nodes(Graph& g, const std::string& text) {
  Reader reader(g, text);
  while (!reader.done()) g.outputs = reader.statement();
}

std::string print_nodes(const Graph& g) {
  std::map<TensorId, std::string> names;
  for (TensorId t : g.inputs) names[t] = g.tensor(t).name;
  for (TensorId t : g.outputs) names[t] = g.tensor(t).name;
  int count = 0;
  auto print_operand = [&](TensorId t) -> std::string {
    if (t == kNoTensor) return "_";
    const ConstantPtr& c = g.info(t).constant;
    if (!c) return names[t];
    if (c->elements() == 1 && c->dtype == DType::F32) return list<float>(*c);
    if (c->dtype == DType::I64 && c->elements() <= 8) return "[" + list<int64_t>(*c) + "]";
    return g.tensor(t).name;
  };
  std::string out;
  for (const Node& n : g.nodes) {
    std::string line, operands, attrs;
    for (TensorId t : n.outputs) {
      if (t != kNoTensor && !names.contains(t)) names[t] = "t" + std::to_string(count++);
      line += (line.empty() ? "" : ", ") + (t == kNoTensor ? "_" : names[t]);
    }
    for (TensorId t : n.inputs) operands += (operands.empty() ? "" : ", ") + print_operand(t);
    for (const auto& [k, v] : n.attrs) attrs += (attrs.empty() ? "" : ", ") + k + ": " + print(v);
    line += " = " + (n.domain.empty() ? "" : n.domain + ".") + n.op + "(" + operands + ")";
    out += line + (attrs.empty() ? "" : " {" + attrs + "}") + "\n";
  }
  return out;
}

}  // namespace ingot::test
