#include "runtime/kernel_table.h"

#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace ingot {
namespace {

IsaLevel detect() {
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  if (const char* wanted = std::getenv("INGOT_ISA")) {
    if (!std::strcmp(wanted, "x86-64-v2")) return IsaLevel::V2;
    if (std::strcmp(wanted, "x86-64-v3") != 0)
      throw Error(ErrorKind::InvalidInput, fmt::format("INGOT_ISA={} is not a level Ingot knows", wanted),
                  "use x86-64-v2 or x86-64-v3");
    if (!v3) throw Error(ErrorKind::InvalidInput, "INGOT_ISA asks for x86-64-v3, which this CPU does not have");
  }
  return v3 ? IsaLevel::V3 : IsaLevel::V2;
}

}  // namespace

IsaLevel cpu_level() {
  static const IsaLevel level = detect();
  return level;
}

std::string_view name(IsaLevel level) { return level == IsaLevel::V3 ? "x86-64-v3" : "x86-64-v2"; }

}  // namespace ingot
