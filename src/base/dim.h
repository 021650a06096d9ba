// A dimension: a number, or a polynomial over named symbols ("batch", "2*seq + 1"), or unknown.
// Arithmetic folds numbers exactly and keeps polynomials canonical, so equal sizes compare equal however they were
// computed. What a polynomial cannot say (a division that does not come out) becomes a new opaque symbol.
// At run time every dimension is a number and none of the symbolic code is reached.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ingot {

class Dim {
 public:
  Dim(int64_t value = 0) : value_(value) {}  // NOLINT: numbers are dims
  static Dim symbol(const std::string& name);
  static Dim unknown();  // equal to nothing, not even itself

  bool is_const() const { return !poly_ && !unknown_; }
  bool is_unknown() const { return unknown_; }
  int64_t value() const;  // throws Internal when not const
  bool is(int64_t v) const { return is_const() && value_ == v; }
  std::string str() const;

  friend Dim operator+(const Dim&, const Dim&);
  friend Dim operator-(const Dim&, const Dim&);
  friend Dim operator*(const Dim&, const Dim&);
  friend Dim floor_div(const Dim&, const Dim&);  // rounds toward minus infinity; by zero: unknown
  friend Dim ceil_div(const Dim& a, const Dim& b) { return floor_div(a + b - 1, b); }
  friend Dim min(const Dim&, const Dim&);
  friend Dim max(const Dim&, const Dim&);
  // Is a the minimum of b and something else?
  friend bool is_min_with(const Dim& a, const Dim& b);
  // Provably the same size. Two different symbols are not known to differ: that is not what false means.
  friend bool operator==(const Dim&, const Dim&);
  // No two different numbers.
  friend bool may_equal(const Dim& a, const Dim& b) { return !a.is_const() || !b.is_const() || a == b; }
  // Provably >= bound, taking every named symbol to be at least 1 and every computed one (floor, min, max, ?) at least
  // 0: empty dims are resolved by numbers, at run time.
  friend bool at_least(const Dim&, int64_t bound);

  // A sum of coefficient * product of symbols, sorted; no zero coefficients.
  struct Term {
    int64_t coefficient;
    std::vector<std::string> symbols;
  };
  using Polynomial = std::vector<Term>;

 private:
  static Dim from(Polynomial);
  static Polynomial polynomial(const Dim&);

  int64_t value_ = 0;
  bool unknown_ = false;
  std::shared_ptr<const Polynomial> poly_;
};

using Shape = std::vector<Dim>;

Dim product(const Shape&);
bool is_const(const Shape&);
std::string str(const Shape&);  // "[2, seq, 384]"
// All dims as numbers; throws Internal when one is not.
std::vector<int64_t> numbers(const Shape&);
Shape to_shape(const std::vector<int64_t>&);

}  // namespace ingot
