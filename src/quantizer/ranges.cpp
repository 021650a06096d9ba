#include "quantizer/ranges.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace ingot {
namespace {

constexpr size_t kBins = 4096;
constexpr double kLeastScale = FLT_MIN * 256;  // products of two scales stay normal numbers often enough

struct Range {
  double least, most;
};

IntegerRange levels(const RangeOptions& o) {
  IntegerRange r = integer_range(o.dtype);
  if (o.reduce_range) r = {r.least / 2, r.most / 2};
  return r;
}

Range covered(const ValueStatistics& s, const RangeOptions& o, double share) {
  double seen = 0;
  const double tail = (1 - share) * static_cast<double>(s.count());
  Range r{s.least(), s.most()};
  // A one-sided tensor has one tail, another two.
  const double each = s.least() >= 0 || s.most() <= 0 ? tail : tail / 2;
  if (s.least() < 0) {
    size_t i = 0;
    while (i < s.bins().size() && (seen += s.bins()[i]) <= each) i++;
    r.least = std::max(r.least, std::min(s.centre(i) - s.width() / 2, 0.0));
  }
  seen = 0;
  if (s.most() > 0) {
    size_t i = s.bins().size();
    while (i > 0 && (seen += s.bins()[i - 1]) <= each) i--;
    r.most = std::min(r.most, std::max(s.centre(i - 1) + s.width() / 2, 0.0));
  }
  return r;
}

Range shrunk(const ValueStatistics& s, double factor) {
  // Both ends of what reaches farther than the threshold move in.
  const double threshold = factor * std::max(std::abs(s.least()), std::abs(s.most()));
  return {std::max<double>(s.least(), -threshold), std::min<double>(s.most(), threshold)};
}

double squared_error(const ValueStatistics& s, const TensorFacts& f, const IntegerRange& r) {
  double sum = 0;
  for (size_t i = 0; i < s.bins().size(); i++) {
    if (s.bins()[i] == 0) continue;
    const double x = s.centre(i), scale = f.scale[0];
    const double q = std::clamp<double>(std::nearbyint(x / scale) + f.zero_point[0], r.least, r.most);
    const double error = (q - f.zero_point[0]) * scale - x;
    sum += s.bins()[i] * error * error;
  }
  return sum;
}

// Kullback-Leibler divergence of the values, clipped to the range, from what the levels can say of them: within a
// level all bins that hold anything look alike.
double divergence(const ValueStatistics& s, const TensorFacts& f, const IntegerRange& r) {
  const size_t count = static_cast<size_t>(r.most - r.least) + 1;
  std::vector<double> mass(count), places(count), clipped(s.bins().size());
  std::vector<size_t> level(s.bins().size());
  const double scale = f.scale[0];
  const double low = (r.least - f.zero_point[0] - 0.5) * scale, high = (r.most - f.zero_point[0] + 0.5) * scale;
  size_t first = SIZE_MAX, last = 0;
  for (size_t i = 0; i < s.bins().size(); i++)
    if (s.centre(i) >= low && s.centre(i) <= high) first = std::min(first, i), last = i;
  if (first == SIZE_MAX) return std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < s.bins().size(); i++) {
    if (s.bins()[i] == 0) continue;
    const size_t to = std::clamp(i, first, last);
    clipped[to] += s.bins()[i];
  }
  for (size_t i = first; i <= last; i++) {
    const double q = std::clamp<double>(std::nearbyint(s.centre(i) / scale) + f.zero_point[0], r.least, r.most);
    level[i] = static_cast<size_t>(q - r.least);
    mass[level[i]] += s.bins()[i];
    if (clipped[i] > 0) places[level[i]]++;
  }
  double kept = 0, sum = 0;
  for (double m : mass) kept += m;
  const auto total = static_cast<double>(s.count());
  for (size_t i = first; i <= last; i++) {
    if (clipped[i] == 0) continue;
    const double p = clipped[i] / total;
    const double q = std::max(mass[level[i]] / std::max(places[level[i]], 1.0) / std::max(kept, 1.0), 1e-12);
    sum += p * std::log(p / q);
  }
  return sum;
}

// The shrink factor of the range for which `cost` is least.
template <class Cost>
Range search(const ValueStatistics& s, const RangeOptions& o, const Cost& cost) {
  Range best{s.least(), s.most()};
  double least = std::numeric_limits<double>::infinity();
  for (int step = 100; step >= 10; step--) {
    const Range r = shrunk(s, step / 100.0);
    const double c = cost(s, facts_for_range(r.least, r.most, o), levels(o));
    if (c < least) least = c, best = r;
  }
  return best;
}

}  // namespace

void ValueStatistics::widen(double to) {
  if (limit_ == 0) {
    bins_.assign(kBins, 0);
    limit_ = std::exp2(std::ceil(std::log2(std::max<double>(to, FLT_MIN))));
  }
  while (to >= limit_) {
    std::vector<double> wide(kBins, 0);
    for (size_t i = 0; i < kBins; i++) wide[kBins / 4 + i / 2] += bins_[i];
    bins_ = std::move(wide);
    limit_ *= 2;
  }
}

bool ValueStatistics::add(std::span<const float> values) {
  if (values.empty()) return true;
  float low = INFINITY, high = -INFINITY;
  bool finite = true;
  for (float v : values) {
    finite &= std::isfinite(v);
    low = std::min(low, v), high = std::max(high, v);
  }
  if (!finite) return false;
  least_ = count_ ? std::min(least_, low) : low;
  most_ = count_ ? std::max(most_, high) : high;
  widen(std::max(std::abs(static_cast<double>(low)), std::abs(static_cast<double>(high))));
  const double per_width = 1 / width();
  for (float v : values) bins_[static_cast<size_t>((static_cast<double>(v) + limit_) * per_width)]++;
  count_ += static_cast<int64_t>(values.size());
  return true;
}

void ValueStatistics::merge(const ValueStatistics& other) {
  if (other.empty()) return;
  if (empty()) {
    *this = other;
    return;
  }
  ValueStatistics from = other;
  widen(from.limit_ * 0.75);
  from.widen(limit_ * 0.75);
  for (size_t i = 0; i < kBins; i++) bins_[i] += from.bins_[i];
  least_ = std::min(least_, from.least_);
  most_ = std::max(most_, from.most_);
  count_ += from.count_;
}

std::optional<RangeMethod> range_method_from_name(const std::string& name) {
  if (name == "minmax") return RangeMethod::MinMax;
  if (name == "percentile") return RangeMethod::Percentile;
  if (name == "entropy") return RangeMethod::Entropy;
  if (name == "mse") return RangeMethod::Mse;
  return std::nullopt;
}

TensorFacts facts_for_range(double least, double most, const RangeOptions& o) {
  least = std::min(least, 0.0), most = std::max(most, 0.0);
  const IntegerRange r = levels(o);
  TensorFacts f;
  f.dtype = o.dtype;
  double scale = 0, zero = 0;
  if (o.symmetric) {
    const bool is_signed = r.least < 0;
    zero = is_signed ? 0 : (r.most + 1) / 2;
    scale = std::max(-least, most) / (is_signed ? r.most : r.most - zero);
  } else {
    scale = (most - least) / (r.most - r.least);
    if (scale > 0) zero = std::clamp<double>(std::nearbyint(r.least - least / scale), r.least, r.most);
  }
  if (scale == 0) scale = 1;  // nothing but zeros
  f.scale = {static_cast<float>(std::max(scale, kLeastScale))};
  f.zero_point = {static_cast<int32_t>(zero)};
  return f;
}

TensorFacts choose_range(const ValueStatistics& s, const RangeOptions& o) {
  Range r{s.least(), s.most()};
  if (r.least != r.most && o.method == RangeMethod::Percentile) r = covered(s, o, o.percentile / 100);
  if (r.least != r.most && o.method == RangeMethod::Mse) r = search(s, o, squared_error);
  if (r.least != r.most && o.method == RangeMethod::Entropy) r = search(s, o, divergence);
  return facts_for_range(r.least, r.most, o);
}

TensorFacts weight_facts(const Constant& c, std::optional<int64_t> axis, int64_t block, const RangeOptions& o) {
  const auto values = c.as<float>();
  int64_t inner = 1, size = 1;
  if (axis) {
    for (size_t d = static_cast<size_t>(*axis) + 1; d < c.dims.size(); d++) inner *= c.dims[d];
    size = c.dims[static_cast<size_t>(*axis)];
  }
  // Scale number of element i, as in quantize_constant.
  const int64_t along = block ? (size + block - 1) / block : size;
  const int64_t outer = axis ? c.elements() / std::max<int64_t>(inner * size, 1) : 1;
  const int64_t scales = !axis ? 1 : block ? outer * along * inner : along;
  std::vector<float> low(static_cast<size_t>(scales), 0), high(static_cast<size_t>(scales), 0);
  for (int64_t i = 0; i < static_cast<int64_t>(values.size()); i++) {
    const int64_t at = i / inner % size;
    const int64_t s = !axis ? 0 : block ? (i / inner / size * along + at / block) * inner + i % inner : at;
    const float v = values[static_cast<size_t>(i)];
    low[static_cast<size_t>(s)] = std::min(low[static_cast<size_t>(s)], v);
    high[static_cast<size_t>(s)] = std::max(high[static_cast<size_t>(s)], v);
  }
  TensorFacts out;
  out.dtype = o.dtype;
  out.axis = axis;
  out.block = block;
  for (size_t s = 0; s < low.size(); s++) {
    const TensorFacts one = facts_for_range(low[s], high[s], o);
    out.scale.push_back(one.scale[0]);
    out.zero_point.push_back(one.zero_point[0]);
  }
  return out;
}

}  // namespace ingot
