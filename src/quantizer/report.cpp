#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "quantizer/quantizer.h"

namespace ingot {
namespace {

std::string db(const std::optional<double>& v) {
  if (!v) return "-";
  return std::isfinite(*v) ? fmt::format("{:.1f}", *v) : *v > 0 ? "exact" : "-inf";
}

// JSON has no infinity: an exact result is null with "exact": true beside it, where it matters to a reader.
Json number(const std::optional<double>& v) { return v && std::isfinite(*v) ? Json(*v) : Json(); }

}  // namespace

std::string report_text(const QuantizeReport& r) {
  std::string out;
  size_t width = 5;
  for (const auto& l : r.quantized) width = std::max(width, l.name.size());
  for (const auto& s : r.skipped) width = std::max(width, s.name.size());
  width = std::min<size_t>(width, 60);
  out += fmt::format("{:<{}}  {:<18} {:>8} {:>8}\n", "layer", width, "operator", "SNR dB", "own dB");
  for (const auto& l : r.quantized)
    out += fmt::format("{:<{}}  {:<18} {:>8} {:>8}\n", l.name, width, l.op, db(l.snr), db(l.own_snr));
  for (const auto& s : r.skipped) out += fmt::format("{:<{}}  {:<18} fp32: {}\n", s.name, width, s.op, s.reason);
  for (const auto& note : r.notes) out += fmt::format("note: {}\n", note);
  for (const auto& [name, snr] : r.outputs) out += fmt::format("output {}: SNR {} dB\n", name, db(snr));
  return out;
}

std::string report_json(const QuantizeReport& r) {
  Json::Array layers, left;
  for (const auto& l : r.quantized)
    layers.push_back(Json::Object{
        {"name", l.name}, {"operator", l.op}, {"snr_db", number(l.snr)}, {"own_snr_db", number(l.own_snr)}});
  for (const auto& s : r.skipped)
    left.push_back(Json::Object{{"name", s.name}, {"operator", s.op}, {"reason", s.reason}});
  Json::Object outputs;
  for (const auto& [name, snr] : r.outputs)
    outputs.emplace_back(name, Json::Object{{"snr_db", number(snr)}, {"exact", std::isinf(snr) && snr > 0}});
  const Json json(Json::Object{{"model", r.model},
                               {"output", r.output},
                               {"bytes", Json::Object{{"before", r.bytes_before}, {"after", r.bytes_after}}},
                               {"quantized_operators", Json::Object(r.quantized_ops.begin(), r.quantized_ops.end())},
                               {"layers", std::move(layers)},
                               {"not_quantized", std::move(left)},
                               {"outputs", std::move(outputs)},
                               {"notes", Json::list(r.notes)}});
  return json.dump(2) + "\n";
}

}  // namespace ingot
