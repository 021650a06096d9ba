#include "quantizer/calibrate.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace ingot {
namespace {

bool is_f32_tensor(const Value& v) { return v.is_tensor() && v.tensor().dtype == DType::F32; }

void need_samples(const Samples& samples) {
  if (samples.count == 0)
    throw Error(ErrorKind::InvalidInput, "there is no calibration data",
                "give samples with --calib, or quantize with --dynamic");
}

}  // namespace

Statistics calibrate(const Graph& graph, const std::vector<std::string>& tensors, const Samples& samples,
                     const ProgressFn& progress) {
  need_samples(samples);
  Runner runner(graph, tensors);
  std::vector<ValueStatistics> seen(tensors.size());
  for (size_t s = 0; s < samples.count; s++) {
    progress("calibrating", s, samples.count);
    const std::vector<Value> values = runner.run(samples.get(s));
    for (size_t i = 0; i < tensors.size(); i++)
      if (is_f32_tensor(values[i]) && !seen[i].add(values[i].tensor().as<float>()))
        throw Error(ErrorKind::InvalidInput,
                    fmt::format("calibration sample {} gives tensor '{}' a value that is not finite", s, tensors[i]),
                    "look for NaN or infinity in the sample, or exclude the node with --exclude-nodes");
  }
  Statistics out;
  for (size_t i = 0; i < tensors.size(); i++) {
    if (seen[i].empty())
      throw Error(ErrorKind::InvalidInput, fmt::format("calibration never reaches tensor '{}'", tensors[i]),
                  "give samples that do, or exclude the nodes that read it with --exclude-nodes");
    out.emplace(tensors[i], std::move(seen[i]));
  }
  return out;
}

std::unordered_map<std::string, ChannelStatistics> channel_statistics(const Graph& graph,
                                                                      const std::vector<std::string>& tensors,
                                                                      const Samples& samples,
                                                                      const ProgressFn& progress) {
  need_samples(samples);
  std::unordered_map<std::string, ChannelStatistics> out;
  std::unordered_map<std::string, double> rows;
  Runner runner(graph, tensors);
  for (size_t s = 0; s < samples.count; s++) {
    progress("measuring channels", s, samples.count);
    const std::vector<Value> values = runner.run(samples.get(s));
    for (size_t i = 0; i < tensors.size(); i++) {
      if (!is_f32_tensor(values[i]) || values[i].tensor().dims.empty()) continue;
      const auto channels = static_cast<size_t>(values[i].tensor().dims.back());
      const auto data = values[i].tensor().as<float>();
      ChannelStatistics& c = out[tensors[i]];
      if (c.most.empty()) {
        c.least.assign(channels, 0);
        c.most.assign(channels, 0);
        c.mean_square.assign(channels, 0);
      }
      if (c.most.size() != channels) continue;  // an axis of free length: no channels
      for (size_t k = 0; k < data.size(); k++) {
        const size_t at = k % channels;
        c.least[at] = std::min(c.least[at], data[k]);
        c.most[at] = std::max(c.most[at], data[k]);
        c.mean_square[at] += static_cast<double>(data[k]) * data[k];
      }
      rows[tensors[i]] += static_cast<double>(data.size()) / static_cast<double>(std::max<size_t>(channels, 1));
    }
  }
  for (auto& [name, c] : out)
    for (double& m : c.mean_square) m /= std::max(rows[name], 1.0);
  return out;
}

void SignalToNoise::add(const Constant& reference, const Constant& other) {
  if (reference.dtype != DType::F32 || other.dtype != DType::F32 || reference.dims != other.dims) return;
  const auto a = reference.as<float>(), b = other.as<float>();
  for (size_t i = 0; i < a.size(); i++) {
    const double x = a[i], d = static_cast<double>(a[i]) - b[i];
    if (!std::isfinite(x) || a[i] == b[i]) continue;  // masks hold infinities on both sides
    noise_ += std::isfinite(d) ? d * d : x * x;
  }
  for (float x : a)
    if (std::isfinite(x)) signal_ += static_cast<double>(x) * x;
  count_ += static_cast<int64_t>(a.size());
}

double SignalToNoise::db() const {
  if (noise_ == 0) return INFINITY;
  return signal_ == 0 ? -INFINITY : 10 * std::log10(signal_ / noise_);
}

std::vector<SignalToNoise> compare(const Graph& reference, const std::vector<std::string>& reference_tensors,
                                   const Graph& other, const std::vector<std::string>& other_tensors,
                                   const Samples& samples, size_t limit, const ProgressFn& progress,
                                   const std::string& what) {
  std::vector<SignalToNoise> out(reference_tensors.size());
  Runner a(reference, reference_tensors), b(other, other_tensors);
  const size_t count = std::min(samples.count, limit);
  for (size_t s = 0; s < count; s++) {
    progress(what, s, count);
    const std::vector<Value> inputs = samples.get(s);
    const std::vector<Value> x = a.run(inputs), y = b.run(inputs);
    for (size_t i = 0; i < out.size(); i++)
      if (is_f32_tensor(x[i]) && is_f32_tensor(y[i])) out[i].add(x[i].tensor(), y[i].tensor());
  }
  return out;
}

}  // namespace ingot
