// The values that tensors take on sample inputs, and how far two graphs differ on them.
#pragma once
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "quantizer/ranges.h"
#include "quantizer/runner.h"

namespace ingot {

// Called with what is being done, and how much of it is done.
using ProgressFn = std::function<void(const std::string& what, size_t done, size_t of)>;

using Statistics = std::unordered_map<std::string, ValueStatistics>;

// Runs all samples. InvalidInput, naming tensor and sample, for a value that is not finite; and for a tensor that no
// sample gives a value.
Statistics calibrate(const Graph&, const std::vector<std::string>& tensors, const Samples&, const ProgressFn&);

// What is known of each index along the last axis of a tensor.
struct ChannelStatistics {
  std::vector<float> least, most;
  std::vector<double> mean_square;
};
std::unordered_map<std::string, ChannelStatistics> channel_statistics(const Graph&,
                                                                      const std::vector<std::string>& tensors,
                                                                      const Samples&, const ProgressFn&);

// 10 log10(sum of squares / sum of squared differences); infinite when nothing differs.
class SignalToNoise {
 public:
  void add(const Constant& reference, const Constant& other);
  double db() const;
  bool empty() const { return count_ == 0; }

 private:
  double signal_ = 0, noise_ = 0;
  int64_t count_ = 0;
};

// The ratio for each tensor that both graphs have, over up to `limit` samples. Tensors that are not of f32 are left out
// (empty).
std::vector<SignalToNoise> compare(const Graph& reference, const std::vector<std::string>& reference_tensors,
                                   const Graph& other, const std::vector<std::string>& other_tensors, const Samples&,
                                   size_t limit, const ProgressFn&, const std::string& what);

}  // namespace ingot
