// What a specialised kernel takes for granted.
//
// Its code is compiled with the step's parameters as constants, except those that its header lists as sizes: they stay
// run-time values. Kernels that differ in sizes only are thus one kernel, which serves every size and is compiled once.
#pragma once
#include <cstddef>
#include <cstdint>

namespace ingot {

// Neighbouring fields of a Params struct that are sizes. Values up to `small` become constants all the same: where a
// small one (a stride of 0 or 1, few channels) makes other code than a large one.
struct SizeField {
  int64_t first, count;  // in 8-byte fields
  int64_t small = INT64_MIN;
};
#define INGOT_SIZE(PARAMS, MEMBER) ::ingot::SizeField{offsetof(PARAMS, MEMBER) / 8, sizeof(PARAMS{}.MEMBER) / 8}
#define INGOT_SIZE_ABOVE(SMALL, PARAMS, MEMBER) \
  ::ingot::SizeField { offsetof(PARAMS, MEMBER) / 8, sizeof(PARAMS{}.MEMBER) / 8, SMALL }

}  // namespace ingot
