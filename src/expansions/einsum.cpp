// Einsum:  out[o...] = sum over all other letters of a[a...] b[b...] c[c...] ...
//
// Operands are taken in from left to right. A letter that nothing later names is summed as soon as it is met: alone by
// ReduceSum, in a pair by the MatMul that multiplies the two. Letters of both that live on are its batch; those of one
// are its rows or columns, several of them merged into one. A letter that one term names twice is a diagonal. An
// ellipsis stands for letters of its own, counted from the back, which broadcast.
#include <algorithm>

#include "expansions/expander.h"

namespace ingot {
namespace {

using Letters = std::vector<int>;  // characters; from kEllipsis on, the dims of the ellipsis, the last one first
constexpr int kEllipsis = 1000;

bool contains(const Letters& l, int letter) { return std::find(l.begin(), l.end(), letter) != l.end(); }
int64_t place(const Letters& l, int letter) { return std::find(l.begin(), l.end(), letter) - l.begin(); }

struct Term {
  TensorId tensor = kNoTensor;
  Letters letters;  // of its axes
};

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (char c : text)
    if (c == at)
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

// "a...b" of a tensor of this rank; the ellipsis takes what the letters leave over.
Letters read_term(const Expander& e, const std::string& text, int64_t rank, int64_t& ellipsis) {
  Letters letters;
  const size_t dots = text.find("...");
  const int64_t named = static_cast<int64_t>(text.size()) - (dots == std::string::npos ? 0 : 3);
  if (dots != std::string::npos) {
    e.require(rank >= named, "'{}' names more axes than its operand's {}", text, rank);
    ellipsis = std::max(ellipsis, rank - named);
  } else {
    e.require(rank == named, "'{}' names {} axes, its operand has {}", text, named, rank);
  }
  for (size_t i = 0; i < text.size(); i++) {
    if (i == dots) {
      for (int64_t d = rank - named; d-- > 0;) letters.push_back(kEllipsis + static_cast<int>(d));
      i += 2;
    } else {
      const char c = text[i];
      e.require((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'), "'{}' in the equation is no letter", c);
      letters.push_back(c);
    }
  }
  return letters;
}

// Without "->": letters that occur once, in order, behind the ellipsis.
Letters implied_output(const std::vector<Term>& terms, int64_t ellipsis) {
  Letters all, out;
  for (const Term& t : terms) all.insert(all.end(), t.letters.begin(), t.letters.end());
  for (int64_t d = ellipsis; d-- > 0;) out.push_back(kEllipsis + static_cast<int>(d));
  for (int c = 'A'; c <= 'z'; c++)
    if (std::count(all.begin(), all.end(), c) == 1) out.push_back(c);
  return out;
}

class Einsum {
 public:
  explicit Einsum(Expander& expander) : e(expander) {}

  void read() {
    std::string equation = e.node.get_string("equation", "");
    std::erase(equation, ' ');
    const size_t arrow = equation.find("->");
    const auto texts = split(equation.substr(0, arrow), ',');
    e.require(texts.size() == e.node.inputs.size() && !e.node.inputs.empty(),
              "the equation '{}' has {} terms for {} operands", equation, texts.size(), e.node.inputs.size());
    int64_t ellipsis = 0;
    for (size_t i = 0; i < texts.size(); i++)
      terms.push_back({e.in(i), read_term(e, texts[i], e.rank(e.in(i)), ellipsis)});
    if (arrow == std::string::npos) {
      output = implied_output(terms, ellipsis);
      return;
    }
    const std::string right = equation.substr(arrow + 2);
    const bool dots = right.find("...") != std::string::npos;
    int64_t same = 0;
    output = read_term(e, right, static_cast<int64_t>(right.size()) + (dots ? ellipsis - 3 : 0), same);
    for (int letter : output) {
      e.require(std::count(output.begin(), output.end(), letter) == 1, "'{}' names an axis twice", right);
      e.require(std::any_of(terms.begin(), terms.end(), [&](const Term& t) { return contains(t.letters, letter); }),
                "'{}' names an axis that no operand has", right);
    }
  }

  // Small integers are summed as i32, which wraps to the same result.
  void run() {
    const DType type = e.dtype(terms[0].tensor);
    const bool small = is_integer(type) && bits(type) < 32;
    for (Term& t : terms) {
      e.require(e.dtype(t.tensor) == type, "operands are {} and {}", name(type), name(e.dtype(t.tensor)));
      if (small) t.tensor = e.cast(t.tensor, DType::I32);
      take_diagonals(t);
    }
    Term all = terms[0];
    next_ = 1;
    sum_unneeded(all, {});
    while (next_ < terms.size()) {
      Term& b = terms[next_++];
      sum_unneeded(all, b.letters);
      sum_unneeded(b, all.letters);
      all = multiply(all, b);
    }
    e.result(0, e.cast(in_order(all, output).tensor, type));
  }

 private:
  bool needed(int letter) const {
    return contains(output, letter) || std::any_of(terms.begin() + static_cast<int64_t>(next_), terms.end(),
                                                   [&](const Term& t) { return contains(t.letters, letter); });
  }

  // Two axes of one letter are moved to the end and merged; the diagonal is every (n + 1)-th element then.
  void take_diagonals(Term& t) {
    for (size_t i = 0; i < t.letters.size(); i++) {
      auto twin = std::find(t.letters.begin() + static_cast<int64_t>(i) + 1, t.letters.end(), t.letters[i]);
      if (twin == t.letters.end()) continue;
      const auto second = static_cast<size_t>(twin - t.letters.begin());
      std::vector<int64_t> perm;
      std::vector<Size> merged;
      Letters left;
      for (size_t d = 0; d < t.letters.size(); d++)
        if (d != i && d != second) {
          perm.push_back(static_cast<int64_t>(d));
          merged.push_back(e.size(t.tensor, static_cast<int64_t>(d)));
          left.push_back(t.letters[d]);
        }
      const Shape shape = e.shape(t.tensor);
      const Dim &a = shape[i], &b = shape[second];
      e.require(!a.is_const() || !b.is_const() || a == b, "a diagonal is taken of axes with {} and {} elements",
                a.str(), b.str());
      perm.push_back(static_cast<int64_t>(i));
      perm.push_back(static_cast<int64_t>(second));
      const Size n = e.size(t.tensor, static_cast<int64_t>(i));
      merged.push_back(n * n);
      const TensorId flat = e.reshape(e.transpose(t.tensor, perm), merged);
      const TensorId step = e.emit("Add", {e.sizes({n}), e.ints({1})});
      t.tensor = e.emit("Slice", {flat, e.ints({0}), e.ints({kToTheEnd}), e.ints({e.rank(flat) - 1}), step});
      left.push_back(t.letters[i]);
      t.letters = left;
      i = static_cast<size_t>(-1);  // from the start: the axes have moved
    }
  }

  // Sums the letters that neither `kept` nor anything later names.
  void sum_unneeded(Term& t, const Letters& kept) {
    std::vector<int64_t> axes;
    Letters left;
    for (size_t d = 0; d < t.letters.size(); d++)
      if (contains(kept, t.letters[d]) || needed(t.letters[d]))
        left.push_back(t.letters[d]);
      else
        axes.push_back(static_cast<int64_t>(d));
    t = {e.reduce("ReduceSum", t.tensor, axes), left};
  }

  // The axes in this order; letters it does not have become axes of one element.
  Term in_order(const Term& t, const Letters& order) {
    std::vector<int64_t> perm, missing;
    for (size_t i = 0; i < order.size(); i++)
      if (contains(t.letters, order[i]))
        perm.push_back(place(t.letters, order[i]));
      else
        missing.push_back(static_cast<int64_t>(i));
    return {e.unsqueeze(e.transpose(t.tensor, perm), missing), order};
  }

  bool is_one(const Term& t, int letter) {
    return e.shape(t.tensor)[static_cast<size_t>(place(t.letters, letter))].is(1);
  }

  // An axis of one element in `t` broadcasts: the other's elements are summed before.
  void sum_broadcast(Term& t, Term& other, Letters& summed) {
    for (size_t i = summed.size(); i-- > 0;) {
      const int letter = summed[i];
      if (!is_one(t, letter)) continue;
      auto drop = [&](Term& x, const char* op) {
        const int64_t axis = place(x.letters, letter);
        x.tensor = op ? e.reduce(op, x.tensor, {axis}) : e.squeeze(x.tensor, {axis});
        x.letters.erase(x.letters.begin() + axis);
      };
      drop(t, nullptr);
      drop(other, "ReduceSum");
      summed.erase(summed.begin() + static_cast<int64_t>(i));
    }
  }

  Term multiply(Term a, Term b) {
    Letters batch, summed, rows, columns;
    for (int l : a.letters) (!contains(b.letters, l) ? rows : needed(l) ? batch : summed).push_back(l);
    for (int l : b.letters)
      if (!contains(a.letters, l)) columns.push_back(l);
    sum_broadcast(a, b, summed);
    sum_broadcast(b, a, summed);
    Letters order = batch;
    order.insert(order.end(), rows.begin(), rows.end());
    order.insert(order.end(), columns.begin(), columns.end());
    if (summed.empty()) return {e.emit("Mul", {in_order(a, order).tensor, in_order(b, order).tensor}), order};

    const TensorId product = e.emit("MatMul", {matrix(a, batch, rows, summed), matrix(b, batch, summed, columns)});
    if (rows.size() == 1 && columns.size() == 1) return {product, order};
    std::vector<Size> sizes;
    for (size_t i = 0; i < batch.size(); i++) sizes.push_back(e.size(product, static_cast<int64_t>(i)));
    for (int l : rows) sizes.push_back(e.size(a.tensor, place(a.letters, l)));
    for (int l : columns) sizes.push_back(e.size(b.tensor, place(b.letters, l)));
    return {e.reshape(product, sizes), order};
  }

  // [batch..., rows, columns], each of the last two merged.
  TensorId matrix(const Term& t, const Letters& batch, const Letters& rows, const Letters& columns) {
    Letters order = batch;
    order.insert(order.end(), rows.begin(), rows.end());
    order.insert(order.end(), columns.begin(), columns.end());
    const Term ordered = in_order(t, order);
    if (rows.size() == 1 && columns.size() == 1) return ordered.tensor;
    std::vector<Size> sizes;
    int64_t at = 0;
    for (; at < static_cast<int64_t>(batch.size()); at++) sizes.push_back(e.size(ordered.tensor, at));
    for (size_t n : {rows.size(), columns.size()}) {
      Size merged = 1;
      for (size_t i = 0; i < n; i++) merged = merged * e.size(ordered.tensor, at++);
      sizes.push_back(merged);
    }
    return e.reshape(ordered.tensor, sizes);
  }

  Expander& e;
  std::vector<Term> terms;
  Letters output;
  size_t next_ = 0;  // terms from here on are not taken in yet
};

void expand_einsum(Expander& e) {
  Einsum einsum(e);
  einsum.read();
  einsum.run();
}

}  // namespace

void register_einsum(ExpansionRegistry& r) { r.add("Einsum", expand_einsum); }

}  // namespace ingot
