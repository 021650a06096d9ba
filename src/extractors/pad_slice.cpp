// Pad and Slice: attributes that became operands.
#include "extractors/rewriter.h"

namespace ingot {
namespace {

void pad_2(Rewriter& r) {
  auto pads = r.take_ints(r.version == 1 ? "paddings" : "pads");
  if (!pads) pads = r.take_ints("pads");  // written by exporters in opset 1 as well
  if (!pads) r.fail(ErrorKind::InvalidModel, "attribute 'pads' is missing");
  const auto value = r.take_float("value");
  r.set_input(1, r.ints(*pads, "pads"));
  if (value && *value != 0) r.set_input(2, r.scalar_like(*value, r.need_input(0), "value"));
}

void slice_1(Rewriter& r) {
  const auto starts = r.take_ints("starts"), ends = r.take_ints("ends"), axes = r.take_ints("axes");
  if (!starts || !ends) r.fail(ErrorKind::InvalidModel, "attribute '{}' is missing", starts ? "ends" : "starts");
  r.set_input(1, r.ints(*starts, "starts"));
  r.set_input(2, r.ints(*ends, "ends"));
  if (axes) r.set_input(3, r.ints(*axes, "axes"));
}

constexpr Rule kRules[] = {
    {"Pad", 1, 10, pad_2},
    {"Slice", 1, 9, slice_1},
};

}  // namespace

RuleTable pad_slice_rules() { return {"", kRules}; }

}  // namespace ingot
