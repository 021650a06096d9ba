#include "base/limits.h"

#include <array>
#include <cmath>
#include <cstdlib>

#include "base/error.h"

namespace ingot {
namespace {

constexpr std::array kRows = {
    LimitRow{"compile_seconds", &Limits::compile_seconds, 0,
             "time to read and optimise a model, and to emit it; 0: any"},
    LimitRow{"fold_seconds", &Limits::fold_seconds, 0,
             "time to compute what is constant; runs compute the rest; 0: any"},
    LimitRow{"fold_bytes", &Limits::fold_bytes, 0, "what folded constants take; runs compute the rest"},
    LimitRow{"nodes", &Limits::nodes, 1, "nodes of a model once its functions are inlined and its operators expanded"},
    LimitRow{"memory_bytes", &Limits::memory_bytes, 0, "what the tensors of a run take; 0: what the machine has"},
    LimitRow{"plans", &Limits::plans, 1, "sets of shapes whose plans are kept"},
};
constexpr double kMost = 9e15;  // whole numbers up to here are exact

}  // namespace

std::span<const LimitRow> limit_rows() { return kRows; }

void set_limit(Limits& limits, std::string_view name, double value) {
  std::string known;
  for (const LimitRow& row : kRows) {
    if (name != row.name) {
      known += (known.empty() ? "" : ", ") + std::string(row.name);
      continue;
    }
    if (!(value >= row.least && value <= kMost))
      invalid_input("limit {}: {} is not between {} and {}", name, value, row.least, kMost);
    limits.*row.value = value;
    return;
  }
  throw Error(ErrorKind::InvalidInput, fmt::format("there is no limit '{}'", name), "there are: " + known);
}

void set_limit(Limits& limits, std::string_view text) {
  const size_t eq = text.find('=');
  const std::string value(text.substr(eq == std::string_view::npos ? text.size() : eq + 1));
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  if (value.empty() || *end != '\0')
    throw Error(ErrorKind::InvalidInput, fmt::format("limit {}: no number is given", text),
                "for instance memory_bytes=1e9");
  set_limit(limits, text.substr(0, eq), number);
}

std::string describe_limits() {
  std::string out;
  const Limits defaults;
  for (const LimitRow& row : kRows)
    out += fmt::format("{}{} ({}; {})", out.empty() ? "" : "\n", row.name, row.help, defaults.*row.value);
  return out;
}

}  // namespace ingot
