#include "runtime/run_alone.h"

#include <gtest/gtest.h>

namespace ingot {
namespace {

constexpr int64_t kShort = RunAlone::kShort;

TEST(RunAlone, LongPlansGetHelp) {
  RunAlone r;
  for (int i = 0; i < 10; i++) {
    EXPECT_FALSE(r.alone());
    r.ran(false, 2 * kShort);
  }
}

TEST(RunAlone, AShortPlanStaysAlone) {
  RunAlone r;
  r.ran(false, kShort / 2);
  EXPECT_TRUE(r.alone());
  r.ran(true, kShort - 1);
  EXPECT_TRUE(r.alone());
  EXPECT_FALSE(r.timed());
}

TEST(RunAlone, APlanThatIsShortOnlyWithHelpGetsItAfterSomeTrials) {
  RunAlone r;
  r.ran(false, kShort * 3 / 4);
  int trials = 0;
  for (; r.alone() && trials < 100; trials++) r.ran(true, kShort * 5 / 4);
  EXPECT_GT(trials, 0);
  EXPECT_LT(trials, 10);
  EXPECT_FALSE(r.alone());
}

TEST(RunAlone, FasterCodeIsTriedAgain) {
  RunAlone r;
  r.ran(false, kShort * 3 / 4);
  while (r.alone()) r.ran(true, kShort * 5 / 4);
  r.ran(false, kShort / 3);
  EXPECT_TRUE(r.alone());
}

}  // namespace
}  // namespace ingot
