#include "base/dim.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"

namespace ingot {
namespace {

bool before(const Dim::Term& a, const Dim::Term& b) {
  if (a.symbols.size() != b.symbols.size()) return a.symbols.size() > b.symbols.size();
  return a.symbols < b.symbols;
}

Dim::Polynomial canonical(Dim::Polynomial p) {
  for (auto& t : p) std::sort(t.symbols.begin(), t.symbols.end());
  std::sort(p.begin(), p.end(), before);
  Dim::Polynomial out;
  for (auto& t : p) {
    if (!out.empty() && out.back().symbols == t.symbols)
      out.back().coefficient = checked_add(out.back().coefficient, t.coefficient);
    else
      out.push_back(std::move(t));
  }
  std::erase_if(out, [](const Dim::Term& t) { return t.coefficient == 0; });
  return out;
}

// t / d when d divides it exactly.
std::optional<Dim::Term> divide(const Dim::Term& t, const Dim::Term& d) {
  if (t.coefficient % d.coefficient != 0) return std::nullopt;
  Dim::Term r{t.coefficient / d.coefficient, t.symbols};
  for (const auto& s : d.symbols) {
    auto it = std::find(r.symbols.begin(), r.symbols.end(), s);
    if (it == r.symbols.end()) return std::nullopt;
    r.symbols.erase(it);
  }
  return r;
}

// A commutative function reads the same whichever way round it was computed.
std::string unordered(const char* function, const Dim& a, const Dim& b) {
  std::string x = a.str(), y = b.str();
  if (y < x) std::swap(x, y);
  return std::string(function) + "(" + x + ", " + y + ")";
}

constexpr size_t kMaxTerms = 32;  // past this a size is opaque; keeps hostile arithmetic small

}  // namespace

Dim Dim::symbol(const std::string& name) {
  Dim d;
  d.poly_ = std::make_shared<const Polynomial>(Polynomial{{1, {name}}});
  return d;
}

Dim Dim::unknown() {
  Dim d;
  d.unknown_ = true;
  return d;
}

int64_t Dim::value() const {
  if (!is_const()) fail(ErrorKind::Internal, "dimension {} is not a number", str());
  return value_;
}

Dim Dim::from(Polynomial p) {
  p = canonical(std::move(p));
  if (p.empty()) return 0;
  if (p.size() == 1 && p[0].symbols.empty()) return p[0].coefficient;
  if (p.size() > kMaxTerms) return unknown();
  Dim d;
  d.poly_ = std::make_shared<const Polynomial>(std::move(p));
  return d;
}

Dim::Polynomial Dim::polynomial(const Dim& d) {
  if (d.poly_) return *d.poly_;
  if (d.value_ == 0) return {};
  return {{d.value_, {}}};
}

std::string Dim::str() const {
  if (unknown_) return "?";
  if (!poly_) return std::to_string(value_);
  std::string out;
  for (const Term& t : *poly_) {
    int64_t c = t.coefficient;
    if (!out.empty()) {
      out += c < 0 ? " - " : " + ";
      c = c < 0 ? -c : c;
    }
    std::string body;
    for (const auto& s : t.symbols) body += (body.empty() ? "" : "*") + s;
    if (c != 1 || body.empty()) body = std::to_string(c) + (body.empty() ? "" : "*") + body;
    out += body;
  }
  return out;
}

Dim operator+(const Dim& a, const Dim& b) {
  if (a.is_const() && b.is_const()) return checked_add(a.value_, b.value_);
  if (a.unknown_ || b.unknown_) return Dim::unknown();
  Dim::Polynomial p = Dim::polynomial(a);
  for (auto& t : Dim::polynomial(b)) p.push_back(t);
  return Dim::from(std::move(p));
}

Dim operator-(const Dim& a, const Dim& b) { return a + b * Dim(-1); }

Dim operator*(const Dim& a, const Dim& b) {
  if (a.is_const() && b.is_const()) return checked_mul(a.value_, b.value_);
  if (a.is(0) || b.is(0)) return 0;
  if (a.unknown_ || b.unknown_) return Dim::unknown();
  Dim::Polynomial p;
  for (const auto& x : Dim::polynomial(a))
    for (const auto& y : Dim::polynomial(b)) {
      Dim::Term t{checked_mul(x.coefficient, y.coefficient), x.symbols};
      t.symbols.insert(t.symbols.end(), y.symbols.begin(), y.symbols.end());
      p.push_back(std::move(t));
      if (p.size() > kMaxTerms * 4) return Dim::unknown();
    }
  return Dim::from(std::move(p));
}

Dim floor_div(const Dim& a, const Dim& b) {
  if (b.is(0) || a.unknown_ || b.unknown_) return Dim::unknown();
  if (b.is(1)) return a;
  if (a.is_const() && b.is_const()) {
    if (b.value_ == -1) return checked_mul(a.value_, -1);
    int64_t q = a.value_ / b.value_, r = a.value_ % b.value_;
    return q - (r != 0 && (r < 0) != (b.value_ < 0));
  }
  if (a.is(0)) return 0;
  if (a == b) return 1;
  Dim::Polynomial num = Dim::polynomial(a), den = Dim::polynomial(b);
  if (den.size() == 1) {
    Dim::Polynomial exact, rest;
    for (const auto& t : num) {
      auto q = divide(t, den[0]);
      (q ? exact : rest).push_back(q ? *q : t);
    }
    if (rest.empty()) return Dim::from(std::move(exact));
    // floor(q*d + r, d) = q + floor(r, d)
    Dim r = Dim::from(std::move(rest));
    Dim quotient =
        r.is_const() && b.is_const() ? floor_div(r, b) : Dim::symbol("floor((" + r.str() + ")/(" + b.str() + "))");
    return Dim::from(std::move(exact)) + quotient;
  }
  return Dim::symbol("floor((" + a.str() + ")/(" + b.str() + "))");
}

// True for a computed symbol that may be below 0: "floor((-1*h)/(4))", of something that a symbol is taken away from.
static bool subtracts_symbol(const std::string& s) {
  if (s.find('(') == std::string::npos) return false;  // a name
  for (size_t at = s.find('-'); at != std::string::npos; at = s.find('-', at + 1)) {
    const size_t next = s.find_first_not_of(" 0123456789", at + 1);
    if (next != std::string::npos && s[next] != ')' && s[next] != '+' && s[next] != '-' && s[next] != ',') return true;
  }
  return false;
}

bool at_least(const Dim& d, int64_t bound) {
  if (d.unknown_) return false;
  if (!d.poly_) return d.value_ >= bound;
  int64_t least = 0;
  for (const Dim::Term& t : *d.poly_) {
    if (!t.symbols.empty() && t.coefficient < 0) return false;
    if (std::any_of(t.symbols.begin(), t.symbols.end(), subtracts_symbol)) return false;
    bool computed = std::any_of(t.symbols.begin(), t.symbols.end(),
                                [](const std::string& s) { return s[0] == '?' || s.find('(') != std::string::npos; });
    if (!computed) least = checked_add(least, t.coefficient);
  }
  return least >= bound;
}

Dim min(const Dim& a, const Dim& b) {
  if (a.is_const() && b.is_const()) return std::min(a.value_, b.value_);
  if (a.unknown_ || b.unknown_) return Dim::unknown();
  if (at_least(a - b, 0)) return b;
  if (at_least(b - a, 0)) return a;
  return Dim::symbol(unordered("min", a, b));
}

bool is_min_with(const Dim& a, const Dim& b) {
  const std::string text = a.str(), other = b.str();
  return text.starts_with("min(") && (text.starts_with("min(" + other + ", ") || text.ends_with(", " + other + ")"));
}

Dim max(const Dim& a, const Dim& b) {
  if (a.is_const() && b.is_const()) return std::max(a.value_, b.value_);
  if (a.unknown_ || b.unknown_) return Dim::unknown();
  if (at_least(a - b, 0)) return a;
  if (at_least(b - a, 0)) return b;
  return Dim::symbol(unordered("max", a, b));
}

bool operator==(const Dim& a, const Dim& b) {
  if (a.unknown_ || b.unknown_) return false;
  if (a.is_const() || b.is_const()) return a.is_const() && b.is_const() && a.value_ == b.value_;
  const auto &p = *a.poly_, &q = *b.poly_;
  return std::equal(p.begin(), p.end(), q.begin(), q.end(), [](const Dim::Term& x, const Dim::Term& y) {
    return x.coefficient == y.coefficient && x.symbols == y.symbols;
  });
}

Dim product(const Shape& s) {
  Dim p = 1;
  for (const Dim& d : s) p = p * d;
  return p;
}

bool is_const(const Shape& s) {
  return std::all_of(s.begin(), s.end(), [](const Dim& d) { return d.is_const(); });
}

std::string str(const Shape& s) {
  std::string out = "[";
  for (size_t i = 0; i < s.size(); i++) out += (i ? ", " : "") + s[i].str();
  return out + "]";
}

std::vector<int64_t> numbers(const Shape& s) {
  std::vector<int64_t> out;
  out.reserve(s.size());
  for (const Dim& d : s) out.push_back(d.value());
  return out;
}

Shape to_shape(const std::vector<int64_t>& v) { return Shape(v.begin(), v.end()); }

}  // namespace ingot
