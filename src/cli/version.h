// The version of the project, as CMakeLists.txt says it.
#pragma once

namespace ingot {

#ifndef INGOT_VERSION
#define INGOT_VERSION "0.0.0"
#endif
inline constexpr const char* kVersion = INGOT_VERSION;

}  // namespace ingot
