#include "runtime/c_values.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace ingot {
namespace {

TEST(CValues, ASequenceLongerThanItsMemoryIsRefused) {
  ingot_tensor items[2] = {{.kind = INGOT_NONE}, {.kind = INGOT_NONE}};
  ingot_tensor t{.data = items, .bytes = sizeof items, .kind = INGOT_SEQUENCE, .rank = 1, .dims = {2}};
  EXPECT_EQ(from_c(t, "input 0").items().size(), 2u);
  t.dims[0] = 3;
  EXPECT_THROW(from_c(t, "input 0"), Error);
}

}  // namespace
}  // namespace ingot
