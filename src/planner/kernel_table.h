// Which of a kernel's builds this CPU runs.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "kernels/abi.h"

namespace ingot {

// x86-64-v2: SSE4.2; x86-64-v3: AVX2 + FMA; x86-64-v3+vnni: also AVX-VNNI. Each has all of those before it.
enum class IsaLevel { V2, V3, V3Vnni };

// What this CPU runs; INGOT_ISA=x86-64-v2 lowers it.
IsaLevel cpu_level();
std::string_view name(IsaLevel);
std::optional<IsaLevel> level_named(std::string_view);
std::string level_names();  // for messages

// The level whose kernels one is compiled from: AVX-VNNI is a matter of specialised code only.
inline IsaLevel kernels_level(IsaLevel level) { return level == IsaLevel::V2 ? IsaLevel::V2 : IsaLevel::V3; }

// A kernel's build for this CPU.
inline KernelFn native(const Kernel& kernel) { return kernel.native[static_cast<size_t>(kernels_level(cpu_level()))]; }

}  // namespace ingot
