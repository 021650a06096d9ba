// ai.onnx.ml: operators on numbers that standard ones can say.
#include "extractors/ml.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ingot {

TensorId floats(Rewriter& r, const std::vector<float>& values, const std::vector<int64_t>& dims,
                const std::string& what) {
  return r.constant(make_constant(DType::F32, dims, values), what);
}

TensorId cast_to(Rewriter& r, TensorId x, DType to) {
  if (r.graph.info(x).dtype == to) return x;
  return r.emit("Cast", {x}, {{"to", static_cast<int64_t>(to)}});
}

namespace {

TensorId scalar(Rewriter& r, float value) { return floats(r, {value}, {}, "constant"); }

// exp(x) over its sum, where a score of zero (to 1e-7) takes no part in the sum
TensorId softmax_zero(Rewriter& r, TensorId x) {
  const TensorId axes = r.ints({-1}, "axes");
  const TensorId largest = r.emit("ReduceMax", {x, axes});
  const TensorId counts = r.emit("Greater", {r.emit("Abs", {x}), scalar(r, 1e-7f)});
  const TensorId power = r.emit("Exp", {r.emit("Sub", {x, largest})});
  const TensorId rest = r.emit("Mul", {x, r.emit("Exp", {r.emit("Neg", {largest})})});
  const TensorId sum = r.emit("ReduceSum", {r.emit("Where", {counts, power, scalar(r, 0)}), axes});
  return r.emit("Div", {r.emit("Where", {counts, power, rest}), sum});
}

// sqrt(2) erfinv(2 x - 1), with Winitzki's approximation of erfinv
TensorId probit(Rewriter& r, TensorId x) {
  const float a = 0.147f, pi = 3.14159265f;
  const TensorId y = r.emit("Sub", {r.emit("Mul", {x, scalar(r, 2)}), scalar(r, 1)});
  const TensorId one = scalar(r, 1);
  const TensorId log = r.emit("Log", {r.emit("Mul", {r.emit("Sub", {one, y}), r.emit("Add", {one, y})})});
  const TensorId v = r.emit("Add", {r.emit("Mul", {log, scalar(r, 0.5f)}), scalar(r, 2 / (pi * a))});
  const TensorId inner = r.emit("Sub", {r.emit("Mul", {v, v}), r.emit("Mul", {log, scalar(r, 1 / a)})});
  const TensorId size = r.emit("Sqrt", {r.emit("Sub", {r.emit("Sqrt", {inner}), v})});
  return r.emit("Mul", {r.emit("Mul", {size, r.emit("Sign", {y})}), scalar(r, std::sqrt(2.f))});
}

}  // namespace

TensorId post_transformed(Rewriter& r, TensorId x, const std::string& transform) {
  if (transform == "NONE" || transform.empty()) return x;
  if (transform == "LOGISTIC") return r.emit("Sigmoid", {x});
  if (transform == "SOFTMAX") return r.emit("Softmax", {x}, {{"axis", int64_t{-1}}});
  if (transform == "SOFTMAX_ZERO") return softmax_zero(r, x);
  if (transform == "PROBIT") return probit(r, x);
  r.fail(ErrorKind::InvalidModel, "post_transform '{}' is not known", transform);
}

void set_result(Rewriter& r, size_t i, TensorId result) {
  if (r.node.has_output(i)) r.emit_after("Identity", {result}, {r.node.outputs[i]});
}

namespace {

ConstantPtr string_constant(std::vector<std::string> strings) {
  auto c = std::make_shared<Constant>();
  c->dtype = DType::String;
  c->dims = {std::ssize(strings)};
  c->strings = std::move(strings);
  return c;
}

}  // namespace

ClassLabels class_labels(Rewriter& r, const char* attr) {
  ClassLabels labels{r.node.get_ints(attr), {}};
  if (labels.integers.empty()) labels.strings = r.node.get_strings("classlabels_strings");
  if (labels.size() == 0) r.fail(ErrorKind::InvalidModel, "has no class labels");
  return labels;
}

TensorId labels_at(Rewriter& r, const ClassLabels& labels, TensorId index) {
  const TensorId all = labels.strings.empty() ? r.ints(labels.integers, "classlabels")
                                              : r.constant(string_constant(labels.strings), "classlabels");
  return r.emit("Gather", {all, index});
}

namespace {

void binarizer(Rewriter& r) {
  const TensorId x = r.need_input(0);
  const TensorId above = r.emit("Greater", {x, r.scalar_like(r.node.get_float("threshold", 0), x, "threshold")});
  r.become("CastLike", {above, x});
}

// (x - offset) * scale
void scaler(Rewriter& r) {
  TensorId x = cast_to(r, r.need_input(0), DType::F32);
  const auto offset = r.node.get_floats("offset"), scale = r.node.get_floats("scale");
  if (!offset.empty()) x = r.emit("Sub", {x, floats(r, offset, {std::ssize(offset)}, "offset")});
  if (scale.empty()) return r.become("Identity", {x});
  r.become("Mul", {x, floats(r, scale, {std::ssize(scale)}, "scale")});
}

// x / norm(x) over the last axis, and x where that is 0
void normalizer(Rewriter& r) {
  const std::string norm = r.node.get_string("norm", "MAX");
  const char* op = norm == "MAX" ? "ReduceMax" : norm == "L1" ? "ReduceL1" : norm == "L2" ? "ReduceL2" : nullptr;
  if (!op) r.fail(ErrorKind::InvalidModel, "norm '{}' is not known", norm);
  const TensorId x = cast_to(r, r.need_input(0), DType::F32);
  const TensorId size = r.emit(op, {x, r.ints({-1}, "axes")});
  const TensorId zero = r.emit("Equal", {size, scalar(r, 0)});
  r.become("Div", {x, r.emit("Where", {zero, scalar(r, 1), size})});
}

void imputer(Rewriter& r) {
  const TensorId x = r.need_input(0);
  const auto whole = r.node.get_ints("imputed_value_int64s");
  const auto real = r.node.get_floats("imputed_value_floats");
  if (whole.empty() == real.empty()) r.fail(ErrorKind::InvalidModel, "needs either integer or float imputed values");
  TensorId missing, with;
  if (!whole.empty()) {
    with = r.ints(whole, "imputed");
    missing = r.emit(
        "Equal", {x, r.constant(make_constant(DType::I64, {}, std::vector{r.node.get_int("replaced_value_int64", 0)}),
                                "replaced")});
  } else {
    const float replaced = r.node.get_float("replaced_value_float", 0);
    with = r.emit("CastLike", {floats(r, real, {std::ssize(real)}, "imputed"), x});
    missing =
        std::isnan(replaced) ? r.emit("IsNaN", {x}) : r.emit("Equal", {x, r.scalar_like(replaced, x, "replaced")});
  }
  r.become("Where", {missing, with, x});
}

// [C] is one row.
TensorId as_rows(Rewriter& r, TensorId x) { return r.rank(x) == 1 ? r.emit("Unsqueeze", {x, r.ints({0}, "axes")}) : x; }

void array_feature_extractor(Rewriter& r) {
  const TensorId columns = r.emit("Reshape", {r.need_input(1), r.ints({-1}, "shape")});
  r.become("Gather", {as_rows(r, r.need_input(0)), columns}, {{"axis", int64_t{-1}}});
}

void feature_vectorizer(Rewriter& r) {
  std::vector<TensorId> parts;
  for (size_t i = 0; i < r.node.inputs.size(); i++)
    parts.push_back(cast_to(r, as_rows(r, r.need_input(i)), DType::F32));
  r.become("Concat", parts, {{"axis", int64_t{1}}});
}

// x W^T + b, W given row by row
TensorId linear(Rewriter& r, int64_t rows) {
  const auto w = r.node.get_floats("coefficients"), b = r.node.get_floats("intercepts");
  if (rows <= 0 || w.empty() || std::ssize(w) % rows != 0 || (!b.empty() && std::ssize(b) != rows))
    r.fail(ErrorKind::InvalidModel, "has {} coefficients and {} intercepts for {} results", w.size(), b.size(), rows);
  std::vector<TensorId> operands = {cast_to(r, as_rows(r, r.need_input(0)), DType::F32),
                                    floats(r, w, {rows, std::ssize(w) / rows}, "coefficients")};
  if (!b.empty()) operands.push_back(floats(r, b, {rows}, "intercepts"));
  return r.emit("Gemm", operands, {{"transB", int64_t{1}}});
}

void linear_regressor(Rewriter& r) {
  const TensorId y = linear(r, r.node.get_int("targets", 1));
  set_result(r, 0, post_transformed(r, y, r.node.get_string("post_transform", "NONE")));
  r.drop();
}

// One row of coefficients decides between two classes: the scores are 1 - s and s, logistic ones those of -s and s.
void linear_classifier(Rewriter& r) {
  const auto labels = class_labels(r, "classlabels_ints");
  const auto b = r.node.get_floats("intercepts");
  const int64_t rows = b.empty() ? std::ssize(labels) : std::ssize(b);
  const std::string transform = r.node.get_string("post_transform", "NONE");
  const TensorId scores = linear(r, rows);
  TensorId index, result;
  if (rows == 1 && labels.size() == 2) {
    index = cast_to(r, r.emit("Squeeze", {r.emit("Greater", {scores, scalar(r, 0)}), r.ints({1}, "axes")}), DType::I64);
    const bool logistic = transform == "LOGISTIC";
    const TensorId other = logistic ? r.emit("Neg", {scores}) : r.emit("Sub", {scalar(r, 1), scores});
    result = r.emit("Concat", {other, scores}, {{"axis", int64_t{1}}});
    if (logistic) result = r.emit("Sigmoid", {result});
  } else {
    index = r.emit("ArgMax", {scores}, {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}});
    result = post_transformed(r, scores, transform);
  }
  set_result(r, 0, labels_at(r, labels, index));
  set_result(r, 1, result);
  r.drop();
}

// Keys in ascending order, with their values: what a binary search needs. NaN is the last key.
template <class K>
void sort_pairs(std::vector<K>& keys, std::vector<size_t>& order) {
  order.resize(keys.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return keys[a] < keys[b] || (keys[a] == keys[a] && keys[b] != keys[b]); });
  std::vector<K> sorted;
  for (size_t i : order) sorted.push_back(keys[i]);
  keys = std::move(sorted);
}

// Without the attribute zeros an unknown category is an error, otherwise its row is all zeros.
void one_hot_encoder(Rewriter& r) {
  auto keys = r.node.get_ints("cats_int64s");
  const auto words = r.node.get_strings("cats_strings");
  if (keys.empty() == words.empty()) r.fail(ErrorKind::InvalidModel, "needs either integer or string categories");
  std::vector<size_t> order(words.size());
  std::iota(order.begin(), order.end(), 0u);
  if (words.empty()) sort_pairs(keys, order);  // words are looked up one by one
  std::vector<int64_t> places(order.begin(), order.end()), all(order.size());
  places.push_back(-1);
  std::iota(all.begin(), all.end(), 0);
  const AttributeMap strict = {{"strict", int64_t{r.node.get_int("zeros", 1) == 0}}};
  const TensorId x = words.empty() ? cast_to(r, r.need_input(0), DType::I64) : r.need_input(0);
  const TensorId categories = words.empty() ? r.ints(keys, "keys") : r.constant(string_constant(words), "keys");
  const TensorId place = r.emit("Lookup", {x, categories, r.ints(places, "places")}, strict, "ingot");
  const TensorId column = r.emit("Unsqueeze", {place, r.ints({-1}, "axes")});
  const TensorId same = r.emit("Equal", {column, r.ints(all, "categories")});
  r.become("Cast", {same}, {{"to", static_cast<int64_t>(DType::F32)}});
}

ConstantPtr list_attribute(Rewriter& r, const std::string& what) {
  if (const ConstantPtr tensor = r.node.get_constant(what + "_tensor")) return tensor;
  if (r.node.has(what + "_int64s")) {
    const auto v = r.node.get_ints(what + "_int64s");
    return make_constant(DType::I64, {std::ssize(v)}, v);
  }
  if (r.node.has(what + "_floats")) {
    const auto v = r.node.get_floats(what + "_floats");
    return make_constant(DType::F32, {std::ssize(v)}, v);
  }
  if (r.node.has(what + "_strings")) return string_constant(r.node.get_strings(what + "_strings"));
  return nullptr;
}

ConstantPtr default_value(Rewriter& r, DType t) {
  if (const ConstantPtr tensor = r.node.get_constant("default_tensor")) return tensor;
  switch (t) {
    case DType::String:
      return string_constant({r.node.get_string("default_string", "_Unused")});
    case DType::I64:
      return make_constant(t, {1}, std::vector{r.node.get_int("default_int64", -1)});
    case DType::I32:
      return make_constant(t, {1}, std::vector{int32_t{-1}});
    case DType::I16:
      return make_constant(t, {1}, std::vector{int16_t{-1}});
    case DType::F64:
      return make_constant(t, {1}, std::vector{-0.0});
    default:
      return make_constant(t, {1}, std::vector{r.node.get_float("default_float", -0.f)});
  }
}

template <class T, class K>
std::vector<K> as_keys(const Constant& c) {
  const auto v = c.as<T>();
  return std::vector<K>(v.begin(), v.end());
}

void label_encoder(Rewriter& r) {
  const ConstantPtr keys = list_attribute(r, "keys"), values = list_attribute(r, "values");
  if (!keys || !values) r.fail(ErrorKind::InvalidModel, "has no keys or no values");
  if (keys->elements() != values->elements())
    r.fail(ErrorKind::InvalidModel, "has {} keys and {} values", keys->elements(), values->elements());
  std::vector<size_t> order(static_cast<size_t>(keys->elements()));
  std::iota(order.begin(), order.end(), 0u);
  TensorId key_tensor;
  if (keys->dtype == DType::String || values->dtype == DType::String) {
    key_tensor = r.constant(keys, "keys");  // looked up one by one
  } else if (keys->dtype == DType::I64 || keys->dtype == DType::I32 || keys->dtype == DType::I16) {
    auto k = keys->dtype == DType::I64   ? as_keys<int64_t, int64_t>(*keys)
             : keys->dtype == DType::I32 ? as_keys<int32_t, int64_t>(*keys)
                                         : as_keys<int16_t, int64_t>(*keys);
    sort_pairs(k, order);
    key_tensor = r.ints(k, "keys");
  } else if (keys->dtype == DType::F32 || keys->dtype == DType::F64) {
    auto k = keys->dtype == DType::F32 ? as_keys<float, double>(*keys) : as_keys<double, double>(*keys);
    sort_pairs(k, order);
    key_tensor = r.constant(make_constant(DType::F64, {std::ssize(k)}, k), "keys");
  } else {
    r.fail(ErrorKind::Unsupported, "has keys of type {}", name(keys->dtype));
  }
  const auto width = static_cast<size_t>(bits(values->dtype) / 8);
  if (width == 0) r.fail(ErrorKind::Unsupported, "has values of type {}", name(values->dtype));
  const ConstantPtr fallback = default_value(r, values->dtype);
  if (fallback->dtype != values->dtype || fallback->elements() != 1)
    r.fail(ErrorKind::InvalidModel, "has values of type {} and a default of type {}", name(values->dtype),
           name(fallback->dtype));
  if (values->dtype == DType::String) {
    std::vector<std::string> all = values->strings;
    all.push_back(fallback->strings.at(0));
    r.become("Lookup", {r.need_input(0), key_tensor, r.constant(string_constant(std::move(all)), "values")});
    r.node.domain = "ingot";
    return;
  }
  std::vector<std::byte> sorted;
  for (size_t i : order)
    sorted.insert(sorted.end(), values->bytes.begin() + static_cast<ptrdiff_t>(i * width),
                  values->bytes.begin() + static_cast<ptrdiff_t>((i + 1) * width));
  sorted.insert(sorted.end(), fallback->bytes.begin(), fallback->bytes.end());
  const TensorId value_tensor =
      r.constant(make_constant(values->dtype, {keys->elements() + 1}, std::span<const std::byte>(sorted)), "values");
  r.become("Lookup", {r.need_input(0), key_tensor, value_tensor});
  r.node.domain = "ingot";
}

constexpr Rule kRules[] = {
    {"ArrayFeatureExtractor", 1, kAnyVersion, array_feature_extractor},
    {"Binarizer", 1, kAnyVersion, binarizer},
    {"FeatureVectorizer", 1, kAnyVersion, feature_vectorizer},
    {"Imputer", 1, kAnyVersion, imputer},
    {"LabelEncoder", 2, kAnyVersion, label_encoder},
    {"LinearClassifier", 1, kAnyVersion, linear_classifier},
    {"LinearRegressor", 1, kAnyVersion, linear_regressor},
    {"Normalizer", 1, kAnyVersion, normalizer},
    {"OneHotEncoder", 1, kAnyVersion, one_hot_encoder},
    {"Scaler", 1, kAnyVersion, scaler},
};

}  // namespace

RuleTable ml_rules() { return {"ai.onnx.ml", kRules}; }

}  // namespace ingot
