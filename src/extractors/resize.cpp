// Upsample and the first Resize -> Resize as it is today; GridSample's modes.
#include <algorithm>

#include "extractors/rewriter.h"

namespace ingot {
namespace {

TensorId floats(Rewriter& r, const std::vector<float>& values) {
  return r.constant(make_constant(DType::F32, {static_cast<int64_t>(values.size())}, values), "scales");
}

// Both took the pixel at or before out / scale, and knew no other way.
void as_resize(Rewriter& r, TensorId scales) {
  r.node.op = "Resize";
  r.node.inputs = {r.need_input(0), kNoTensor, scales};
  std::string mode = r.node.get_string("mode", "nearest");
  if (mode == "bilinear" || mode == "trilinear") mode = "linear";
  r.node.attrs = {{"mode", mode},
                  {"coordinate_transformation_mode", std::string("asymmetric")},
                  {"nearest_mode", std::string("floor")}};
}

void upsample_1(Rewriter& r) {
  if (!r.node.has("height_scale") || !r.node.has("width_scale"))
    r.fail(ErrorKind::InvalidModel, "attributes 'height_scale' and 'width_scale' are missing");
  as_resize(r, floats(r, {1, 1, r.node.get_float("height_scale", 1), r.node.get_float("width_scale", 1)}));
}

void upsample_7(Rewriter& r) {
  if (!r.node.has("scales")) r.fail(ErrorKind::InvalidModel, "attribute 'scales' is missing");
  as_resize(r, floats(r, r.node.get_floats("scales")));
}

void upsample_9(Rewriter& r) { as_resize(r, r.need_input(1)); }

// The first Resize rounded up where it made smaller, and down where it made larger. Today one mode serves all axes:
// with both kinds of axes it takes two steps.
void resize_10(Rewriter& r) {
  const TensorId x = r.need_input(0), scales = r.need_input(1);
  as_resize(r, scales);
  const ConstantPtr c = r.value(scales);
  if (!c || c->dtype != DType::F32 || r.node.get_string("mode", "") != "nearest") return;
  std::vector<float> down, up;
  for (float s : c->as<float>()) {
    down.push_back(std::min(s, 1.0f));
    up.push_back(std::max(s, 1.0f));
  }
  if (std::all_of(down.begin(), down.end(), [](float s) { return s == 1; })) return;
  AttributeMap rounding_up = r.node.attrs;
  rounding_up["nearest_mode"] = std::string("ceil");
  if (std::all_of(up.begin(), up.end(), [](float s) { return s == 1; })) {
    r.node.attrs = rounding_up;
    return;
  }
  const TensorId smaller = r.emit("Resize", {x, kNoTensor, floats(r, down)}, rounding_up);
  r.node.inputs = {smaller, kNoTensor, floats(r, up)};
}

// An operand that was required is given as an empty tensor when it is not meant.
void resize_11(Rewriter& r) {
  for (size_t i : {1u, 2u, 3u})
    if (auto c = r.value(r.input(i)); c && c->elements() == 0) r.node.inputs[i] = kNoTensor;
  while (!r.node.inputs.empty() && r.node.inputs.back() == kNoTensor) r.node.inputs.pop_back();
}

void grid_sample_16(Rewriter& r) {
  const std::string mode = r.node.get_string("mode", "bilinear");
  r.node.attrs["mode"] = mode == "bilinear" ? std::string("linear") : mode == "bicubic" ? std::string("cubic") : mode;
}

constexpr Rule kRules[] = {
    {"Upsample", 1, 6, upsample_1}, {"Upsample", 7, 8, upsample_7},         {"Upsample", 9, kAnyVersion, upsample_9},
    {"Resize", 10, 10, resize_10},  {"Resize", 11, kAnyVersion, resize_11}, {"GridSample", 16, 19, grid_sample_16},
};

}  // namespace

RuleTable resize_rules() { return {"", kRules}; }

}  // namespace ingot
