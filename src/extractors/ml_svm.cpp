// ai.onnx.ml: support vector machines, as products and element-wise functions, in f64:
//   K[n][v] = kernel(x[n], vector[v]),   score = K C + rho
// A classifier has a score for each pair of classes i < j, whose C holds the coefficients of the vectors of i and of j;
// the sign is a vote for one of them.
#include <algorithm>

#include "extractors/ml.h"

namespace ingot {
namespace {

TensorId doubles(Rewriter& r, const std::vector<double>& values, const std::vector<int64_t>& dims, const char* what) {
  return r.constant(make_constant(DType::F64, dims, values), what);
}
TensorId scalar(Rewriter& r, double value) { return doubles(r, {value}, {}, "constant"); }

std::vector<double> real_list(const Rewriter& r, const char* attr) {
  const auto v = r.node.get_floats(attr);
  return {v.begin(), v.end()};
}

// [rows, features] as a transposed constant.
TensorId transposed(Rewriter& r, const std::vector<double>& v, int64_t rows, const char* what) {
  if (rows <= 0 || v.empty() || std::ssize(v) % rows != 0)
    r.fail(ErrorKind::InvalidModel, "has {} numbers in {} {}", v.size(), rows, what);
  const auto n = static_cast<size_t>(rows), features = v.size() / n;
  std::vector<double> out(v.size());
  for (size_t i = 0; i < n; i++)
    for (size_t f = 0; f < features; f++) out[f * n + i] = v[i * features + f];
  return doubles(r, out, {static_cast<int64_t>(features), rows}, what);
}

struct Kernel {
  std::string type;
  double gamma = 0, coef0 = 0, degree = 0;
};
Kernel kernel_of(const Rewriter& r) {
  Kernel k{r.node.get_string("kernel_type", "LINEAR")};
  const auto p = real_list(r, "kernel_params");
  if (p.size() >= 3) k.gamma = p[0], k.coef0 = p[1], k.degree = p[2];
  return k;
}

// |x|^2 + |v|^2 - 2 x v
TensorId squared_distance(Rewriter& r, TensorId x, TensorId product, const std::vector<double>& v, int64_t rows) {
  std::vector<double> squares(static_cast<size_t>(rows), 0);
  const size_t features = v.size() / squares.size();
  for (size_t i = 0; i < v.size(); i++) squares[i / features] += v[i] * v[i];
  const TensorId mine = r.emit("ReduceSumSquare", {x, r.ints({1}, "axes")});
  const TensorId both = r.emit("Add", {mine, doubles(r, squares, {rows}, "squares")});
  return r.emit("Sub", {both, r.emit("Mul", {product, scalar(r, 2)})});
}

TensorId kernel_matrix(Rewriter& r, const Kernel& k, TensorId x, const std::vector<double>& vectors, int64_t rows) {
  const TensorId product = r.emit("MatMul", {x, transposed(r, vectors, rows, "vectors")});
  if (k.type == "LINEAR") return product;
  if (k.type == "RBF") {
    const TensorId distance = squared_distance(r, x, product, vectors, rows);
    return r.emit("Exp", {r.emit("Mul", {distance, scalar(r, -k.gamma)})});
  }
  const TensorId affine = r.emit("Add", {r.emit("Mul", {product, scalar(r, k.gamma)}), scalar(r, k.coef0)});
  if (k.type == "POLY") return r.emit("Pow", {affine, scalar(r, k.degree)});
  if (k.type == "SIGMOID") return r.emit("Tanh", {affine});
  r.fail(ErrorKind::InvalidModel, "kernel_type '{}' is not known", k.type);
}

TensorId input_rows(Rewriter& r) {
  TensorId x = r.need_input(0);
  if (r.rank(x) == 1) x = r.emit("Unsqueeze", {x, r.ints({0}, "axes")});
  return cast_to(r, x, DType::F64);
}

void regressor(Rewriter& r) {
  const int64_t supports = r.node.get_int("n_supports", 0);
  const auto coefficients = real_list(r, "coefficients"), rho = real_list(r, "rho");
  const TensorId x = input_rows(r);
  TensorId y;
  if (supports > 0) {
    if (std::ssize(coefficients) != supports)
      r.fail(ErrorKind::InvalidModel, "has {} coefficients for {} vectors", coefficients.size(), supports);
    const TensorId k = kernel_matrix(r, kernel_of(r), x, real_list(r, "support_vectors"), supports);
    y = r.emit("MatMul", {k, doubles(r, coefficients, {supports, 1}, "coefficients")});
  } else {
    y = kernel_matrix(r, {"LINEAR"}, x, coefficients, 1);
  }
  if (!rho.empty()) y = r.emit("Add", {y, scalar(r, rho[0])});
  if (r.node.get_int("one_class", 0))
    y = r.emit("Where", {r.emit("Greater", {y, scalar(r, 0)}), scalar(r, 1), scalar(r, -1)});
  const TensorId scores = cast_to(r, y, DType::F32);
  set_result(r, 0, post_transformed(r, scores, r.node.get_string("post_transform", "NONE")));
  r.drop();
}

// The classes of each pair, in order.
std::vector<std::pair<size_t, size_t>> pairs_of(size_t classes) {
  std::vector<std::pair<size_t, size_t>> out;
  for (size_t i = 0; i < classes; i++)
    for (size_t j = i + 1; j < classes; j++) out.emplace_back(i, j);
  return out;
}

// C: for pair (i, j) the coefficients of the vectors of i are in row j - 1 of the attribute, those of j in row i.
TensorId pair_coefficients(Rewriter& r, const std::vector<int64_t>& per_class, size_t vectors) {
  const auto c = real_list(r, "coefficients");
  const auto pairs = pairs_of(per_class.size());
  if (c.size() != (per_class.size() - 1) * vectors)
    r.fail(ErrorKind::InvalidModel, "has {} coefficients for {} vectors of {} classes", c.size(), vectors,
           per_class.size());
  std::vector<size_t> start(per_class.size() + 1, 0);
  for (size_t i = 0; i < per_class.size(); i++) start[i + 1] = start[i] + static_cast<size_t>(per_class[i]);
  std::vector<double> out(vectors * pairs.size(), 0);
  for (size_t p = 0; p < pairs.size(); p++) {
    const auto [i, j] = pairs[p];
    for (size_t v = start[i]; v < start[i + 1]; v++) out[v * pairs.size() + p] = c[(j - 1) * vectors + v];
    for (size_t v = start[j]; v < start[j + 1]; v++) out[v * pairs.size() + p] = c[i * vectors + v];
  }
  return doubles(r, out, {static_cast<int64_t>(vectors), std::ssize(pairs)}, "coefficients");
}

// votes[n][c] = number of pairs that c wins: (s > 0) (first - second) + sum of second
TensorId winner(Rewriter& r, TensorId scores, size_t classes) {
  const auto pairs = pairs_of(classes);
  std::vector<double> gain(pairs.size() * classes, 0), lost(classes, 0);
  for (size_t p = 0; p < pairs.size(); p++) {
    gain[p * classes + pairs[p].first] = 1;
    gain[p * classes + pairs[p].second] = -1;
    lost[pairs[p].second]++;
  }
  const TensorId won = cast_to(r, r.emit("Greater", {scores, scalar(r, 0)}), DType::F64);
  const TensorId gains = doubles(r, gain, {std::ssize(pairs), static_cast<int64_t>(classes)}, "gain");
  const TensorId votes =
      r.emit("Add", {r.emit("MatMul", {won, gains}), doubles(r, lost, {static_cast<int64_t>(classes)}, "lost")});
  return r.emit("ArgMax", {votes}, {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}});
}

// 1 / (1 + exp(a s + b)) of each pair
TensorId pair_probabilities(Rewriter& r, TensorId scores, size_t pairs) {
  const auto a = real_list(r, "prob_a"), b = real_list(r, "prob_b");
  if (a.size() != pairs || b.size() != pairs)
    r.fail(ErrorKind::InvalidModel, "has {} and {} probability coefficients for {} pairs", a.size(), b.size(), pairs);
  const std::vector<int64_t> dims = {static_cast<int64_t>(pairs)};
  const TensorId scaled = r.emit("Mul", {scores, doubles(r, a, dims, "prob_a")});
  const TensorId p = r.emit("Sigmoid", {r.emit("Neg", {r.emit("Add", {scaled, doubles(r, b, dims, "prob_b")})})});
  return r.emit("Clip", {p, scalar(r, 1e-7), scalar(r, 1 - 1e-7)});
}

void pairwise(Rewriter& r, const ClassLabels& labels, const std::vector<int64_t>& per_class) {
  size_t vectors = 0;
  for (int64_t n : per_class) {
    if (n < 0 || n > INT32_MAX) r.fail(ErrorKind::InvalidModel, "a class has {} vectors", n);
    vectors += static_cast<size_t>(n);
  }
  const size_t classes = per_class.size(), pairs = classes * (classes - 1) / 2;
  const auto rho = real_list(r, "rho");
  if (classes < 2 || labels.size() != classes || rho.size() != pairs)
    r.fail(ErrorKind::InvalidModel, "has {} labels, {} classes with vectors and {} offsets", labels.size(), classes,
           rho.size());
  const TensorId k =
      kernel_matrix(r, kernel_of(r), input_rows(r), real_list(r, "support_vectors"), static_cast<int64_t>(vectors));
  const TensorId scores = r.emit("Add", {r.emit("MatMul", {k, pair_coefficients(r, per_class, vectors)}),
                                         doubles(r, rho, {static_cast<int64_t>(pairs)}, "rho")});
  const bool likely = !r.node.get_floats("prob_a").empty();
  TensorId result = scores;
  if (likely)
    result =
        r.emit("Couple", {pair_probabilities(r, scores, pairs)}, {{"classes", static_cast<int64_t>(classes)}}, "ingot");
  else if (classes == 2)
    result = r.emit("Concat", {r.emit("Neg", {scores}), scores}, {{"axis", int64_t{1}}});
  set_result(r, 0, labels_at(r, labels, winner(r, scores, classes)));
  const TensorId z = cast_to(r, result, DType::F32);
  set_result(r, 1, post_transformed(r, z, r.node.get_string("post_transform", "NONE")));
  r.drop();
}

void classifier(Rewriter& r) {
  const auto labels = class_labels(r, "classlabels_ints");
  const auto per_class = r.node.get_ints("vectors_per_class");
  if (!per_class.empty()) return pairwise(r, labels, per_class);
  const auto rho = real_list(r, "rho");
  TensorId scores = kernel_matrix(r, {"LINEAR"}, input_rows(r), real_list(r, "coefficients"), std::ssize(labels));
  if (!rho.empty()) scores = r.emit("Add", {scores, scalar(r, rho[0])});
  const TensorId best = r.emit("ArgMax", {scores}, {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}});
  set_result(r, 0, labels_at(r, labels, best));
  set_result(r, 1, post_transformed(r, cast_to(r, scores, DType::F32), r.node.get_string("post_transform", "NONE")));
  r.drop();
}

constexpr Rule kRules[] = {
    {"SVMClassifier", 1, kAnyVersion, classifier},
    {"SVMRegressor", 1, kAnyVersion, regressor},
};

}  // namespace

RuleTable ml_svm_rules() { return {"ai.onnx.ml", kRules}; }

}  // namespace ingot
