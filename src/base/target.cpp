#include "base/target.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

#include "base/error.h"

namespace ingot {
namespace {

struct BuildInfo {
  std::string_view march;
  int64_t lanes, registers;
  std::string_view bits;
};
#define INGOT_TARGET(...)
#define INGOT_BUILD(name, march, lanes, registers, bits, optimise) BuildInfo{march, lanes, registers, bits},
constexpr BuildInfo kBuildInfo[] = {
#include "base/targets.inc"
};
#undef INGOT_TARGET
#undef INGOT_BUILD

constexpr Target make_target(std::string_view name, Build build, std::string_view features) {
  const BuildInfo& b = kBuildInfo[static_cast<size_t>(build)];
  return {name, build, b.march, b.lanes, b.registers, b.bits, features};
}
#define INGOT_BUILD(...)
#define INGOT_TARGET(name, build, features) make_target(name, Build::build, features),
constexpr Target kTargets[] = {
#include "base/targets.inc"
};
#undef INGOT_TARGET
#undef INGOT_BUILD

// Where cpuid tells of a feature beyond the builds.
struct FeatureBit {
  std::string_view name;
  unsigned leaf, subleaf;
  char output;  // register
  unsigned bit;
};
constexpr FeatureBit kFeatureBits[] = {
    {"avxvnni", 7, 1, 'a', 4},   {"avx512vnni", 7, 0, 'c', 11}, {"avx512bf16", 7, 1, 'a', 5},
    {"amx-tile", 7, 0, 'd', 24}, {"amx-int8", 7, 0, 'd', 25},   {"amx-bf16", 7, 0, 'd', 22},
};

bool cpu_has(const FeatureBit& f) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(f.leaf, f.subleaf, &a, &b, &c, &d)) return false;
  return ((f.output == 'a' ? a : f.output == 'c' ? c : d) >> f.bit & 1) != 0;
}

// Linux keeps a process's tiles only after the process has asked for them.
bool may_use_tiles() {
  constexpr int kRequestState = 0x1023, kTileData = 18;
  static const bool granted = syscall(SYS_arch_prctl, kRequestState, kTileData) == 0;
  return granted;
}

bool has_build(Build build) {
  __builtin_cpu_init();
  switch (build) {
    case Build::v2:
      return __builtin_cpu_supports("x86-64-v2");
    case Build::v3:
      return __builtin_cpu_supports("x86-64-v3");
    case Build::v4:
      return __builtin_cpu_supports("x86-64-v4");
  }
  return false;
}

bool needs(const Target& target, const FeatureBit& f) { return target.has("+" + std::string(f.name)); }

// Has this CPU, and its system, all that the target needs?
bool cpu_runs(const Target& target) {
  return has_build(target.build) && (!target.has("amx") || may_use_tiles()) &&
         std::ranges::all_of(kFeatureBits, [&](const FeatureBit& f) { return !needs(target, f) || cpu_has(f); });
}

// What this CPU lacks of the targets that are preferred to `target`.
std::string missing_beyond(const Target& target) {
  std::vector<std::string_view> out;
  const auto add = [&](std::string_view name) {
    if (std::ranges::find(out, name) == out.end()) out.push_back(name);
  };
  for (const Target* t = &target + 1; t < std::end(kTargets); t++) {
    if (!has_build(t->build)) add(t->march);
    for (const FeatureBit& f : kFeatureBits)
      if (needs(*t, f) && !cpu_has(f)) add(f.name);
  }
  return fmt::format("{}", fmt::join(out, ", "));
}

const Target& widest_here() {
  for (size_t i = std::size(kTargets); i-- > 0;)
    if (cpu_runs(kTargets[i])) return kTargets[i];
  throw Error(ErrorKind::Unsupported, fmt::format("this CPU is older than {}", kTargets[0].name));
}

const Target& choose() {
  const char* text = std::getenv("INGOT_ISA");
  if (!text) return widest_here();
  const Target* wanted = target_named(text);
  if (!wanted)
    throw Error(ErrorKind::InvalidInput, fmt::format("INGOT_ISA={} is not a target Ingot knows", text),
                "use " + target_names());
  if (!cpu_runs(*wanted))
    throw Error(ErrorKind::InvalidInput, fmt::format("INGOT_ISA asks for {}, which this CPU does not run", text),
                fmt::format("it runs {}", widest_here().name));
  return *wanted;
}

}  // namespace

std::span<const Target> targets() { return kTargets; }

const Target* target_named(std::string_view text) {
  const auto* found =
      std::find_if(std::begin(kTargets), std::end(kTargets), [&](const Target& t) { return t.name == text; });
  return found == std::end(kTargets) ? nullptr : found;
}

std::string target_names() {
  std::string out;
  for (const Target& t : kTargets) out += (out.empty() ? "" : ", ") + std::string(t.name);
  return out;
}

const Target& cpu_target() {
  static const Target& target = choose();
  return target;
}

std::string why_cpu_target() {
  if (std::getenv("INGOT_ISA")) return "INGOT_ISA";
  const std::string missing = missing_beyond(cpu_target());
  return fmt::format("of {} targets the last that this CPU runs{}", std::size(kTargets),
                     missing.empty() ? "" : "; it has no " + missing);
}

bool runs_here(const Target& target) {
  const Target& most = cpu_target();
  if (!std::getenv("INGOT_ISA")) return cpu_runs(target);
  // A set within a set: builds grow from one to the next, features beyond them do not.
  return target.build <= most.build &&
         std::ranges::all_of(kFeatureBits, [&](const FeatureBit& f) { return !needs(target, f) || needs(most, f); });
}

}  // namespace ingot
