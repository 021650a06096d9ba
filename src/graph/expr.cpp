#include "graph/expr.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <map>

#include "base/error.h"
#include "graph/ewise_types.h"

namespace ingot {
namespace {

bool same(const ExprInstr& a, const ExprInstr& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.input == b.input && a.op == b.op && a.args == b.args &&
         (a.value == b.value || (std::isnan(a.value) && std::isnan(b.value))) &&
         std::signbit(a.value) == std::signbit(b.value);
}

bool is_constant(const ExprInstr& i, double value) { return i.kind == ExprInstr::kConstant && i.value == value; }
// An integer as a float.
bool is_widened(const Expr& e, const ExprInstr& i) {
  return i.kind == ExprInstr::kCall && i.op.starts_with("cast_f") &&
         is_integer(e.code[static_cast<size_t>(i.args[0])].dtype);
}
bool is_whole(const Expr& e, const ExprInstr& i) {
  return i.kind == ExprInstr::kConstant ? i.value == std::nearbyint(i.value) : is_widened(e, i);
}

// cast_u8(clip(add(round(x), z), 0, 255)) -> quantize_u8(x, z) for whole z, which is 0 without add, and the same for
// i8: rounding, saturating and narrowing at once.
ExprInstr as_quantize(Expr& e, ExprInstr i) {
  auto at = [&](int k) -> const ExprInstr& { return e.code[static_cast<size_t>(k)]; };
  if (i.op != "cast_u8" && i.op != "cast_i8") return i;
  const bool is_signed = i.op == "cast_i8";
  const ExprInstr& clip = at(i.args[0]);
  const double low = is_signed ? -128 : 0;
  if (clip.op != "clip" || !is_constant(at(clip.args[1]), low) || !is_constant(at(clip.args[2]), low + 255)) return i;
  const ExprInstr sum = at(clip.args[0]);
  const std::string op = is_signed ? "quantize_i8" : "quantize_u8";
  if (sum.op == "round") return {i.kind, i.dtype, 0, 0, op, {sum.args[0], e.constant(0, sum.dtype)}};
  if (sum.op != "add") return i;
  for (size_t k = 0; k < 2; k++)
    if (at(sum.args[k]).op == "round" && is_whole(e, at(sum.args[1 - k])))
      return {i.kind, i.dtype, 0, 0, op, {at(sum.args[k]).args[0], sum.args[1 - k]}};
  return i;
}

// sub(cast_f32(quantize_u8(x, z)), z) -> clip(round(x), -z, 255 - z) for a number z, which is 0 without sub, and the
// same for i8: x is a sum of integers times a scale, so never NaN.
ExprInstr as_rounded(Expr& e, const ExprInstr& i) {
  auto at = [&](int k) -> const ExprInstr& { return e.code[static_cast<size_t>(k)]; };
  const bool centred = i.op == "sub" && at(i.args[1]).kind == ExprInstr::kConstant;
  const ExprInstr cast = centred ? at(i.args[0]) : i;
  if (cast.kind != ExprInstr::kCall || cast.op != "cast_f32") return i;
  const ExprInstr q = at(cast.args[0]);
  if (q.kind != ExprInstr::kCall || (q.op != "quantize_u8" && q.op != "quantize_i8")) return i;
  const ExprInstr x = at(q.args[0]);
  if (x.op != "mul" || (!is_widened(e, at(x.args[0])) && !is_widened(e, at(x.args[1])))) return i;
  if (!is_constant(at(q.args[1]), centred ? at(i.args[1]).value : 0)) return i;
  const double low = (q.op == "quantize_i8" ? -128 : 0) - at(q.args[1]).value;
  const int rounded = e.call("round", {q.args[0]});
  return {i.kind, i.dtype, 0, 0, "clip", {rounded, e.constant(low, i.dtype), e.constant(low + 255, i.dtype)}};
}

int add(Expr& e, ExprInstr instr) {
  instr = as_rounded(e, as_quantize(e, std::move(instr)));
  for (size_t i = 0; i < e.code.size(); i++)
    if (same(e.code[i], instr)) return static_cast<int>(i);
  e.code.push_back(std::move(instr));
  return static_cast<int>(e.code.size() - 1);
}

std::string number(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  return fmt::format("{}", v);
}

// Recursive descent over the text form.
class Parser {
 public:
  Parser(const std::string& text, Expr& expr) : text_(text), expr_(expr) {}

  void parse() {
    while (true) {
      size_t start = at_;
      std::string word = name();
      skip();
      if (!word.empty() && peek() == '=') {
        at_++;
        locals_[word] = value();
        expect(';');
        continue;
      }
      at_ = start;
      expr_.results.push_back(value());
      skip();
      if (at_ == text_.size()) return;
      expect('|');
    }
  }

 private:
  [[noreturn]] void wrong(const std::string& what) const {
    invalid_model("expression '{}': {} at position {}", text_, what, at_);
  }
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') at_++;
  }
  char peek() {
    skip();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  void expect(char c) {
    if (peek() != c) wrong(fmt::format("expected '{}'", c));
    at_++;
  }
  std::string name() {
    skip();
    size_t start = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) at_++;
    return text_.substr(start, at_ - start);
  }
  int value() {
    if (++depth_ > 200) wrong("nested too deeply");
    int result = inner_value();
    depth_--;
    return result;
  }
  int inner_value() {
    skip();
    size_t start = at_;
    while (at_ < text_.size() && !std::strchr(" ,();|=", text_[at_])) at_++;
    std::string word = text_.substr(start, at_ - start);
    if (word.empty()) wrong("expected a value");
    if (auto colon = word.find(':'); colon != std::string::npos) return literal(word, colon);
    if (peek() == '(') return call(word);
    if (auto it = locals_.find(word); it != locals_.end()) return it->second;
    if (word == "acc") return expr_.input(0);
    int index = -1;
    if (word[0] == 'x') std::from_chars(word.data() + 1, word.data() + word.size(), index);
    if (index < 0 || index >= static_cast<int>(expr_.input_types.size())) wrong("unknown value '" + word + "'");
    return expr_.input(index);
  }
  int literal(const std::string& word, size_t colon) {
    auto dtype = dtype_from_name(word.substr(colon + 1));
    std::string digits = word.substr(0, colon);
    char* end = nullptr;
    double v = std::strtod(digits.c_str(), &end);
    if (!dtype || digits.empty() || *end) wrong("bad literal '" + word + "'");
    return expr_.constant(v, *dtype);
  }
  int call(const std::string& op) {
    expect('(');
    std::vector<int> args;
    if (peek() != ')')
      while (true) {
        args.push_back(value());
        if (peek() != ',') break;
        at_++;
      }
    expect(')');
    return expr_.call(op, std::move(args));
  }

  const std::string& text_;
  Expr& expr_;
  size_t at_ = 0;
  int depth_ = 0;
  std::map<std::string, int> locals_;
};

}  // namespace

DType value_type(DType stored) { return stored == DType::F16 || stored == DType::BF16 ? DType::F32 : stored; }

int Expr::input(int i) {
  return add(*this, {ExprInstr::kInput, value_type(input_types.at(static_cast<size_t>(i))), i, 0, "", {}});
}

int Expr::constant(double value, DType dtype) {
  return add(*this, {ExprInstr::kConstant, value_type(dtype), 0, value, "", {}});
}

int Expr::call(const std::string& op, std::vector<int> args) {
  std::vector<DType> types;
  for (int a : args) types.push_back(code.at(static_cast<size_t>(a)).dtype);
  DType result = ewise_result_type(op, types);  // checks operator, arity and types
  return add(*this, {ExprInstr::kCall, result, 0, 0, op, std::move(args)});
}

std::vector<int> Expr::inline_expr(const Expr& other, const std::vector<int>& map) {
  std::vector<int> at(other.code.size());
  for (size_t i = 0; i < other.code.size(); i++) {
    const ExprInstr& in = other.code[i];
    if (in.kind == ExprInstr::kInput) {
      at[i] = map.at(static_cast<size_t>(in.input));
    } else {
      ExprInstr copy = in;
      for (int& a : copy.args) a = at[static_cast<size_t>(a)];
      at[i] = add(*this, std::move(copy));
    }
  }
  std::vector<int> out;
  for (int r : other.results) out.push_back(at[static_cast<size_t>(r)]);
  return out;
}

void Expr::remove_dead() {
  std::vector<bool> live(code.size());
  for (int r : results) live[static_cast<size_t>(r)] = true;
  for (size_t i = code.size(); i-- > 0;)
    if (live[i])
      for (int a : code[i].args) live[static_cast<size_t>(a)] = true;
  std::vector<int> at(code.size(), -1);
  std::vector<ExprInstr> kept;
  for (size_t i = 0; i < code.size(); i++) {
    if (!live[i]) continue;
    for (int& a : code[i].args) a = at[static_cast<size_t>(a)];
    at[i] = static_cast<int>(kept.size());
    kept.push_back(std::move(code[i]));
  }
  code = std::move(kept);
  for (int& r : results) r = at[static_cast<size_t>(r)];
}

std::string Expr::str() const {
  std::vector<int> uses(code.size());
  for (const ExprInstr& i : code)
    for (int a : i.args) uses[static_cast<size_t>(a)]++;
  for (int r : results) uses[static_cast<size_t>(r)]++;
  std::string prefix;
  std::vector<std::string> text(code.size());
  int locals = 0;
  for (size_t i = 0; i < code.size(); i++) {
    const ExprInstr& in = code[i];
    if (in.kind == ExprInstr::kInput) {
      text[i] = "x" + std::to_string(in.input);
    } else if (in.kind == ExprInstr::kConstant) {
      text[i] = number(in.value) + ":" + std::string(name(in.dtype));
    } else {
      text[i] = in.op + "(";
      for (size_t a = 0; a < in.args.size(); a++) text[i] += (a ? ", " : "") + text[static_cast<size_t>(in.args[a])];
      text[i] += ")";
      if (uses[i] > 1) {  // shared values get a name, so that the text stays linear in the program
        std::string local = "t" + std::to_string(locals++);
        prefix += local + " = " + text[i] + "; ";
        text[i] = local;
      }
    }
  }
  for (size_t r = 0; r < results.size(); r++) prefix += (r ? " | " : "") + text[static_cast<size_t>(results[r])];
  return prefix;
}

Expr parse_expr(const std::string& text, const std::vector<DType>& input_types,
                const std::vector<DType>& result_types) {
  Expr e;
  e.input_types = input_types;
  Parser(text, e).parse();
  for (size_t i = 0; i < e.results.size(); i++) {
    DType computed = e.code[static_cast<size_t>(e.results[i])].dtype;
    e.result_types.push_back(i < result_types.size() ? result_types[i] : computed);
    if (value_type(e.result_types[i]) != computed)
      invalid_model("expression '{}': result {} is {}, stored as {}", text, i, name(computed), name(e.result_types[i]));
  }
  return e;
}

}  // namespace ingot
