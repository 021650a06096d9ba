#include "runtime/kernel_table.h"

#include <cstdlib>
#include <cstring>
#include <unordered_map>

#include "base/error.h"

// Generated: {name, function} pairs ending with {nullptr, nullptr}.
extern "C" {
struct IngotNativeKernel {
  const char* name;
  void* function;
};
extern const IngotNativeKernel ingot_native_kernels_v2[];
extern const IngotNativeKernel ingot_native_kernels_v3[];
}

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

const std::unordered_map<std::string_view, void*>& table() {
  static const auto map = [] {
    std::unordered_map<std::string_view, void*> m;
    for (const auto* k = cpu_level() == IsaLevel::V3 ? ingot_native_kernels_v3 : ingot_native_kernels_v2; k->name; k++)
      m.emplace(k->name, k->function);
    return m;
  }();
  return map;
}

}  // namespace

IsaLevel cpu_level() {
  static const IsaLevel level = detect();
  return level;
}

std::string_view name(IsaLevel level) { return level == IsaLevel::V3 ? "x86-64-v3" : "x86-64-v2"; }

void* find_native_symbol(const std::string& name) {
  auto it = table().find(name);
  return it == table().end() ? nullptr : it->second;
}

KernelFn find_native_kernel(const std::string& name) { return reinterpret_cast<KernelFn>(find_native_symbol(name)); }

}  // namespace ingot
