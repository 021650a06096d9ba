// Targets: the kinds of CPU that code is made for (base/targets.inc). A target is a set of features, not a rank: Ice
// Lake has VNNI with 512 bits and none with 256.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ingot {

#define INGOT_TARGET(...)
#define INGOT_BUILD(name, ...) name,
enum class Build : uint8_t {
#include "base/targets.inc"
};
#undef INGOT_BUILD
#undef INGOT_TARGET

struct Target {
  std::string_view name;
  Build build;                // whose kernels it runs
  std::string_view march;     // of the build
  int64_t lanes, registers;   // floats of a vector, vectors in registers
  std::string_view bits;      // of a vector, for LLVM
  std::string_view features;  // beyond the build, for LLVM

  bool has(std::string_view feature) const { return features.find(feature) != std::string_view::npos; }
  // An instruction that adds four products of bytes in 32 bits: vpdpbusd.
  bool adds_byte_products() const { return has("vnni"); }
  // Instructions that multiply matrices of bytes: tdpbusd and its kin.
  bool has_byte_tiles() const { return has("amx-int8"); }
};

std::span<const Target> targets();
const Target* target_named(std::string_view);  // nullptr when there is none
std::string target_names();                    // for messages
bool runs_here(const Target&);                 // has this CPU, and its system, all that the target needs?

// The last target of the list that this CPU runs, or the one that INGOT_ISA names.
const Target& cpu_target();
std::string why_cpu_target();

}  // namespace ingot
