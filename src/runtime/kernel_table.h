// The native builds of the kernels, for steps that are not specialised. The build collects every ingot_* function of
// src/kernels/, compiled once per ISA level, into generated tables.
#pragma once
#include <string>
#include <string_view>

#include "kernels/abi.h"

namespace ingot {

enum class IsaLevel { V2, V3 };  // x86-64-v2: SSE4.2; x86-64-v3: AVX2 + FMA

// What this CPU runs; INGOT_ISA=x86-64-v2 lowers it.
IsaLevel cpu_level();
std::string_view name(IsaLevel);

// nullptr when there is no such kernel.
KernelFn find_native_kernel(const std::string& name);

// Any other function of the kernel sources that the host needs at the right level, such as the interpreter.
void* find_native_symbol(const std::string& name);

}  // namespace ingot
