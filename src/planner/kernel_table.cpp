#include "planner/kernel_table.h"

#include <cpuid.h>

#include <cstdlib>

#include "base/error.h"

namespace ingot {
namespace {

constexpr std::string_view kNames[] = {"x86-64-v2", "x86-64-v3", "x86-64-v3+vnni"};

bool has_avx_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & (1u << 4)) != 0;
}

IsaLevel detect() {
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const IsaLevel found = !v3 ? IsaLevel::V2 : has_avx_vnni() ? IsaLevel::V3Vnni : IsaLevel::V3;
  const char* text = std::getenv("INGOT_ISA");
  if (!text) return found;
  const auto wanted = level_named(text);
  if (!wanted)
    throw Error(ErrorKind::InvalidInput, fmt::format("INGOT_ISA={} is not a level Ingot knows", text),
                "use " + level_names());
  if (*wanted > found)
    throw Error(ErrorKind::InvalidInput, fmt::format("INGOT_ISA asks for {}, which this CPU does not have", text));
  return *wanted;
}

}  // namespace

IsaLevel cpu_level() {
  static const IsaLevel level = detect();
  return level;
}

std::string_view name(IsaLevel level) { return kNames[static_cast<size_t>(level)]; }

std::optional<IsaLevel> level_named(std::string_view text) {
  for (size_t i = 0; i < std::size(kNames); i++)
    if (kNames[i] == text) return static_cast<IsaLevel>(i);
  return std::nullopt;
}

std::string level_names() { return fmt::format("{}", fmt::join(kNames, ", ")); }

}  // namespace ingot
