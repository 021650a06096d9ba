// The kernels as LLVM bitcode, embedded in this program.
#pragma once
#include <array>
#include <string_view>

#include "kernels/abi.h"

namespace ingot {

// One module for each build of base/targets.inc.
std::array<std::string_view, kBuilds> kernel_bitcode();

}  // namespace ingot
