// Element-wise expressions on known integer values (shapes, axes, indices): exact on numbers, polynomials on symbols.
#include <algorithm>
#include <cmath>
#include <functional>

#include "ops/elementwise.h"

namespace ingot {
namespace {

// A value of the straight-line program for one element: an integer as a dim, or a floating-point number.
struct Value {
  Dim dim = Dim::unknown();
  double number = 0;
  bool is_number = false;
};
Value of(Dim d) { return {std::move(d), 0, false}; }
Value of(double v, DType dtype) { return {Dim::unknown(), dtype == DType::F32 ? static_cast<float>(v) : v, true}; }
const Value kUnknown;

bool at_least_zero(const Dim& d) { return at_least(d, 0); }
bool positive(const Dim& d) { return at_least(d, 1); }

// a < b, a == b as far as they can be told.
std::optional<bool> less(const Dim& a, const Dim& b) {
  if (positive(b - a)) return true;
  if (at_least_zero(a - b)) return false;
  return std::nullopt;
}
std::optional<bool> equal(const Dim& a, const Dim& b) {
  if (a == b) return true;
  if (positive(a - b) || positive(b - a)) return false;
  return std::nullopt;
}
std::optional<bool> negate(std::optional<bool> b) { return b ? std::optional(!*b) : b; }
Value truth(std::optional<bool> b) { return b ? of(Dim(*b ? 1 : 0)) : kUnknown; }

// Rounds toward zero as integer division does; dims only where both are known not to be negative.
Dim divide(const Dim& a, const Dim& b) {
  if (a.is_const() && b.is_const())
    return b.is(0) || b.is(-1) ? (b.is(0) ? Dim::unknown() : a * Dim(-1)) : Dim(a.value() / b.value());
  return at_least_zero(a) && positive(b) ? floor_div(a, b) : Dim::unknown();
}

Value on_dims(const std::string& op, const Dim& a, const Dim& b) {
  if (op == "add") return of(a + b);
  if (op == "sub") return of(a - b);
  if (op == "mul") return of(a * b);
  if (op == "div") return of(divide(a, b));
  if (op == "mod") return of(a - floor_div(a, b) * b);
  if (op == "min") return of(min(a, b));
  if (op == "max") return of(max(a, b));
  if (op == "eq") return truth(equal(a, b));
  if (op == "ne") return truth(negate(equal(a, b)));
  if (op == "lt") return truth(less(a, b));
  if (op == "gt") return truth(less(b, a));
  if (op == "le") return truth(negate(less(b, a)));
  if (op == "ge") return truth(negate(less(a, b)));
  if (op == "and") return a.is(0) || b.is(0) ? of(Dim(0)) : a.is_const() && b.is_const() ? of(Dim(1)) : kUnknown;
  if (op == "or")
    return a.is_const() && b.is_const() ? of(Dim(!a.is(0) || !b.is(0))) : a.is(1) || b.is(1) ? of(Dim(1)) : kUnknown;
  return kUnknown;
}

Value on_numbers(const std::string& op, double a, double b, DType dtype) {
  if (op == "add") return of(a + b, dtype);
  if (op == "sub") return of(a - b, dtype);
  if (op == "mul") return of(a * b, dtype);
  if (op == "div") return of(a / b, dtype);
  if (op == "min") return of(std::min(a, b), dtype);
  if (op == "max") return of(std::max(a, b), dtype);
  if (op == "pow") return of(std::pow(a, b), dtype);
  if (op == "eq") return truth(a == b);
  if (op == "ne") return truth(a != b);
  if (op == "lt") return truth(a < b);
  if (op == "gt") return truth(a > b);
  if (op == "le") return truth(a <= b);
  if (op == "ge") return truth(a >= b);
  return kUnknown;
}

Value unary(const std::string& op, const Value& x, DType dtype) {
  if (!x.is_number) {
    if (op == "neg") return of(x.dim * Dim(-1));
    if (op == "abs") return at_least_zero(x.dim) ? x : x.dim.is_const() ? of(x.dim * Dim(-1)) : kUnknown;
    if (op == "not") return x.dim.is_const() ? of(Dim(x.dim.is(0))) : kUnknown;
    return kUnknown;
  }
  if (op == "neg") return of(-x.number, dtype);
  if (op == "floor") return of(std::floor(x.number), dtype);
  if (op == "ceil") return of(std::ceil(x.number), dtype);
  if (op == "round") return of(std::nearbyint(x.number), dtype);
  if (op == "trunc") return of(std::trunc(x.number), dtype);
  if (op == "sqrt") return of(std::sqrt(x.number), dtype);
  if (op == "recip") return of(1 / x.number, dtype);
  return kUnknown;
}

bool fits(int64_t v, DType dtype) {
  const int n = bits(dtype);
  if (!is_signed(dtype)) return v >= 0 && (n >= 63 || v < (int64_t{1} << n));
  return n == 64 || (v >= -(int64_t{1} << (n - 1)) && v < (int64_t{1} << (n - 1)));
}

Value cast(const Value& x, DType to) {
  if (is_float(to)) {
    if (x.is_number) return of(x.number, to);
    return x.dim.is_const() ? of(static_cast<double>(x.dim.value()), to) : kUnknown;
  }
  if (x.is_number) {
    if (!(std::abs(x.number) < 9e18)) return kUnknown;
    return cast(to == DType::Bool ? of(Dim(x.number != 0)) : of(Dim(static_cast<int64_t>(x.number))), to);
  }
  if (to == DType::Bool) return truth(negate(equal(x.dim, Dim(0))));
  if (x.dim.is_const() && !fits(x.dim.value(), to)) return kUnknown;
  return x;
}

Value call(const ExprInstr& instr, const std::vector<Value>& at) {
  auto arg = [&](size_t i) -> const Value& { return at[static_cast<size_t>(instr.args[i])]; };
  if (instr.op.starts_with("cast_")) return cast(arg(0), instr.dtype);
  if (instr.args.size() == 1) return unary(instr.op, arg(0), instr.dtype);
  if (instr.op == "where") return arg(0).dim.is_const() ? (arg(0).dim.is(0) ? arg(2) : arg(1)) : kUnknown;
  if (instr.op == "clip" && !arg(0).is_number) return of(min(max(arg(0).dim, arg(1).dim), arg(2).dim));
  if (instr.args.size() != 2 || arg(0).is_number != arg(1).is_number) return kUnknown;
  if (arg(0).is_number) return on_numbers(instr.op, arg(0).number, arg(1).number, instr.dtype);
  return on_dims(instr.op, arg(0).dim, arg(1).dim);
}

// A number the type cannot hold would have wrapped; nobody needs to know to what.
Value in_range(const Value& v, DType dtype) {
  return !v.is_number && v.dim.is_const() && is_integer(dtype) && !fits(v.dim.value(), dtype) ? kUnknown : v;
}

}  // namespace

std::vector<Dim> eval_on_dims(const Expr& expr, int result, const std::vector<std::vector<Dim>>& operands,
                              size_t count) {
  std::vector<Dim> out;
  std::vector<Value> at(expr.code.size());
  for (size_t e = 0; e < count; e++) {
    for (size_t i = 0; i < expr.code.size(); i++) {
      const ExprInstr& instr = expr.code[i];
      if (instr.kind == ExprInstr::kInput)
        at[i] = of(operands[static_cast<size_t>(instr.input)][e]);
      else if (instr.kind == ExprInstr::kConstant)
        at[i] = is_float(instr.dtype) ? of(instr.value, instr.dtype) : of(Dim(static_cast<int64_t>(instr.value)));
      else
        at[i] = in_range(call(instr, at), instr.dtype);
    }
    out.push_back(at[static_cast<size_t>(result)].dim);
  }
  return out;
}

}  // namespace ingot
