// Which of a kernel's builds this CPU runs.
#pragma once
#include <string>
#include <string_view>

#include "kernels/abi.h"

namespace ingot {

enum class IsaLevel { V2, V3 };  // x86-64-v2: SSE4.2; x86-64-v3: AVX2 + FMA

// What this CPU runs; INGOT_ISA=x86-64-v2 lowers it.
IsaLevel cpu_level();
std::string_view name(IsaLevel);

// A kernel's build for this CPU.
inline KernelFn native(const Kernel& kernel) { return kernel.native[static_cast<size_t>(cpu_level())]; }

}  // namespace ingot
