// From the values a tensor takes to its scale and zero point.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quantizer/facts.h"

namespace ingot {

// What calibration remembers of a tensor: its extremes and a histogram of fixed size, however many samples it saw.
class ValueStatistics {
 public:
  // False, and nothing is changed, when a value is not finite.
  bool add(std::span<const float>);

  bool empty() const { return count_ == 0; }
  float least() const { return least_; }
  float most() const { return most_; }
  int64_t count() const { return count_; }
  // Bins over [-limit, limit). The limit is doubled, and neighbouring bins merged, when a value is outside.
  const std::vector<double>& bins() const { return bins_; }
  double limit() const { return limit_; }
  double centre(size_t bin) const { return (static_cast<double>(bin) + 0.5) * width() - limit_; }
  double width() const { return 2 * limit_ / static_cast<double>(bins_.size()); }
  void merge(const ValueStatistics&);

 private:
  void widen(double to);

  float least_ = 0, most_ = 0;
  int64_t count_ = 0;
  double limit_ = 0;
  std::vector<double> bins_;
};

enum class RangeMethod { MinMax, Percentile, Entropy, Mse };
std::optional<RangeMethod> range_method_from_name(const std::string&);

struct RangeOptions {
  RangeMethod method = RangeMethod::MinMax;
  double percentile = 99.99;  // how much of the values the range holds
  DType dtype = DType::U8;
  bool symmetric = false;     // zero point in the middle of the type
  bool reduce_range = false;  // one bit less
};

// Facts of an activation. Zero always has an exact integer: padding and ReLU stay exact.
TensorFacts choose_range(const ValueStatistics&, const RangeOptions&);
// Facts that hold [least, most] and zero.
TensorFacts facts_for_range(double least, double most, const RangeOptions&);

// Facts of a weight: one scale, or one for each index along `axis`, or one for each block of it.
TensorFacts weight_facts(const Constant&, std::optional<int64_t> axis, int64_t block, const RangeOptions&);

}  // namespace ingot
