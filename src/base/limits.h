// How much a model may take, set by the host: one table for Python, the command line and the C interface. A host that
// takes models from others sets them; the defaults let every honest model pass.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ingot {

struct Limits {
  double compile_seconds = 0;   // 0: any
  double fold_seconds = 60;     // what is not folded by then is computed in every run
  double fold_bytes = 1 << 30;  // the same
  double nodes = 1 << 19;
  double memory_bytes = 0;  // 0: what the machine has
  double plans = 16;
};

struct LimitRow {
  const char* name;
  double Limits::* value;
  double least;
  const char* help;
};
std::span<const LimitRow> limit_rows();

// Sets one by its name; an error names those there are and what they take.
void set_limit(Limits&, std::string_view name, double value);
// "memory_bytes=1e9": as set_limit.
void set_limit(Limits&, std::string_view text);
// A line for each, for help texts.
std::string describe_limits();

}  // namespace ingot
