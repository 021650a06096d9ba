// The kernels, embedded in this program.
#pragma once
#include <array>
#include <string_view>

#include "kernels/abi.h"

namespace ingot {

// One file for each build of base/targets.inc: LLVM bitcode, to be specialised; an object, compiled natively; and an
// object in which every kernel is null.
std::array<std::string_view, kBuilds> kernel_bitcode();
std::array<std::string_view, kBuilds> native_kernels();
std::array<std::string_view, kBuilds> absent_kernels();

}  // namespace ingot
