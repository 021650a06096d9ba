// Patterns over data flow. A pattern says what a value is made of, not in which order an exporter wrote it:
//
//   Gelu(x) = 0.5 x (1 + erf(x / sqrt 2))
//   product(0.5, {value("x"), sum(1, {op("Erf", {product(1 / sqrt2, {value("x")})})})})
//
// product and sum look through whole trees of Mul, Div, Neg, Reciprocal and Add, Sub, collect the scalar constants into
// one number, and match what is left in any order. They look through a value only when nothing else reads it, so a
// shared subexpression stays one factor. A name that occurs twice stands for one tensor.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "passes/editor.h"

namespace ingot::match {

class Pattern {
 public:
  struct Body;
  explicit Pattern(std::shared_ptr<const Body> body) : body_(std::move(body)) {}
  const Body& operator*() const { return *body_; }
  const Body* operator->() const { return body_.get(); }

 private:
  std::shared_ptr<const Body> body_;
};

// A number to find: this value within 1e-4 of it, or any value, which is kept under a name.
struct NumberPattern {
  NumberPattern(int v) : value(v) {}                   // NOLINT: numbers are numbers
  NumberPattern(double v) : value(v) {}                // NOLINT
  NumberPattern(const char* n) : value(0), name(n) {}  // NOLINT
  double value;
  std::string name;
};

Pattern value(const std::string& name);     // any tensor
Pattern constant(const std::string& name);  // a tensor fixed in the model
Pattern scalar(NumberPattern);              // a constant with one element
// A node of ai.onnx with one of these operators ("Add", or "ReduceMean|ReduceSum"). Operands in order, those of
// commutative operators in any. Optional operands not mentioned are free.
Pattern op(const std::string& operators, std::vector<Pattern> operands);
// The same, and the node is kept under a name, for its attributes.
Pattern op(const std::string& operators, std::vector<Pattern> operands, const std::string& node_name);
Pattern product(NumberPattern coefficient, std::vector<Pattern> factors);
Pattern sum(NumberPattern constant, std::vector<Pattern> terms);
// As a factor: divided by p. As a term: minus p.
Pattern inverse(Pattern p);
Pattern any_of(std::vector<Pattern>);               // the first that matches
Pattern named(const std::string& name, Pattern p);  // the value of p, kept under a name

struct Match {
  Editor::Handle root = Editor::kNone;
  std::map<std::string, TensorId> values;
  std::map<std::string, double> numbers;
  std::map<std::string, Editor::Handle> node_names;
  std::vector<Editor::Handle> nodes;  // all the pattern stands for, root included

  TensorId value(const std::string& name) const { return values.at(name); }
  double number(const std::string& name) const { return numbers.at(name); }
  bool has(const std::string& name) const { return values.contains(name); }
};

// The first way in which result 0 of the root is p.
std::optional<Match> find(const Editor&, const Pattern& p, Editor::Handle root);
// Operators of ai.onnx that a root of p can have.
std::vector<std::string> root_operators(const Pattern& p);
// Why the nodes of the match cannot go: a value inside that something else reads. Empty when they can.
std::string used_elsewhere(const Editor&, const Match&);
// The same for any set of nodes that become one, of which `root` keeps its results.
std::string used_elsewhere(const Editor&, const std::vector<Editor::Handle>& nodes, Editor::Handle root);

bool close(double a, double b);  // within 1e-4 of each other

}  // namespace ingot::match
