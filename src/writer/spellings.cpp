// How older opsets spell the same node: operands that were attributes, attributes that did not need to be said.
#include <algorithm>

#include "base/error.h"
#include "passes/constants.h"
#include "writer/downgrade.h"

namespace ingot {
namespace {

// Operand i, a constant list, becomes the attribute.
void to_attribute(OlderNode& o, size_t i, const char* attr) {
  if (!o.node.has_input(i)) return;
  const auto values = integer_values(*o.operand(i));
  if (!values || o.node.inputs.size() > i + 1) return;
  o.node.attrs[attr] = *values;
  o.node.inputs.resize(i);
}

// No axes: all of them, unless told otherwise.
void reduce(OlderNode& o) {
  const auto axes = o.operand(1) ? integer_values(*o.operand(1)) : std::vector<int64_t>{};
  if (!axes || (axes->empty() && o.node.get_int("noop_with_empty_axes", 0))) return;
  to_attribute(o, 1, "axes");
  if (axes->empty()) o.node.attrs.erase("axes");
  o.node.attrs.erase("noop_with_empty_axes");
}

void squeeze(OlderNode& o) { to_attribute(o, 1, "axes"); }
void split_sizes(OlderNode& o) { to_attribute(o, 1, "split"); }

// Equal parts need not be counted.
void split_count(OlderNode& o) {
  if (o.opset < 13) split_sizes(o);
  if (o.node.has_input(1) || !o.operand(0)) return;
  if (!o.operand(0)->shape) {
    o.node.attrs.erase("num_outputs");
    return;
  }
  const Shape& shape = *o.operand(0)->shape;
  const auto rank = static_cast<int64_t>(shape.size());
  int64_t axis = o.node.get_int("axis", 0);
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank) return;
  const Dim& dim = shape[static_cast<size_t>(axis)];
  if (!dim.is_const() || dim.value() % static_cast<int64_t>(o.node.outputs.size()) == 0)
    o.node.attrs.erase("num_outputs");
}

// A 0 means "as before" there. It matters only where the list holds one, and says another size than that.
void reshape(OlderNode& o) {
  if (o.operand(0) && o.operand(1))
    if (const auto sizes = integer_values(*o.operand(1)))
      for (size_t i = 0; i < sizes->size(); i++) {
        const std::optional<Shape>& from = o.operand(0)->shape;
        if ((*sizes)[i] == 0 && !(from && i < from->size() && (*from)[i].is(0))) return;
      }
  o.node.attrs.erase("allowzero");
}

void dft(OlderNode& o) {
  const auto rank = o.rank(0);
  if (!rank) return;
  int64_t axis = *rank - 2;
  if (o.operand(2)) {
    const auto given = integer_values(*o.operand(2));
    if (!given || given->size() != 1) return;
    axis = (*given)[0] < 0 ? (*given)[0] + *rank : (*given)[0];
  }
  o.node.attrs["axis"] = axis;
  o.node.inputs.resize(std::min<size_t>(o.node.inputs.size(), 2));
  while (o.node.inputs.back() == kNoTensor) o.node.inputs.pop_back();
}

void grid_sample(OlderNode& o) {
  const std::string mode = o.node.get_string("mode", "linear");
  o.node.attrs["mode"] = mode == "linear" ? std::string("bilinear") : mode == "cubic" ? std::string("bicubic") : mode;
}

// What it did before there were two ways. The other one is said, to be seen by what follows.
void roi_align(OlderNode& o) {
  const std::string mode = o.node.get_string("coordinate_transformation_mode", "half_pixel");
  if (mode == "output_half_pixel")
    o.node.attrs.erase("coordinate_transformation_mode");
  else
    o.node.attrs["coordinate_transformation_mode"] = mode;
}

void without_dilations(OlderNode& o) {
  const auto dilations = o.node.get_ints("dilations");
  if (std::all_of(dilations.begin(), dilations.end(), [](int64_t d) { return d == 1; }))
    o.node.attrs.erase("dilations");
}

bool one_scale(const OlderNode& o) {
  return o.operand(1) && o.operand(1)->shape &&
         (o.operand(1)->shape->empty() || (o.operand(1)->shape->size() == 1 && (*o.operand(1)->shape)[0].is(1)));
}

// The type of the result is that of the zero point, or u8.
void quantize(OlderNode& o) {
  const auto type = static_cast<DType>(o.node.get_int("output_dtype", 0));
  if (type == DType::U8 || o.node.has_input(2)) o.node.attrs.erase("output_dtype");
  const auto precision = static_cast<DType>(o.node.get_int("precision", 0));
  if (o.operand(1) && precision == o.operand(1)->dtype) o.node.attrs.erase("precision");
  if (o.opset < 13 && one_scale(o)) o.node.attrs.erase("axis");
}
void dequantize(OlderNode& o) {
  const auto type = static_cast<DType>(o.node.get_int("output_dtype", 0));
  if (o.operand(1) && type == o.operand(1)->dtype) o.node.attrs.erase("output_dtype");
  if (o.opset < 13 && one_scale(o)) o.node.attrs.erase("axis");
}

// Over the last axis both meanings agree.
void softmax(OlderNode& o) {
  const auto rank = o.rank(0);
  const int64_t axis = o.node.get_int("axis", -1);
  if (axis == -1 || (rank && axis == *rank - 1)) o.node.attrs["axis"] = rank ? *rank - 1 : int64_t{-1};
}

struct Spelling {
  const char* op;
  int64_t until;  // the last opset that spells it so
  void (*spell)(OlderNode&);
};
constexpr Spelling kSpellings[] = {
    {"ReduceSum", 12, reduce},         {"ReduceL1", 17, reduce},         {"ReduceL2", 17, reduce},
    {"ReduceLogSum", 17, reduce},      {"ReduceLogSumExp", 17, reduce},  {"ReduceMax", 17, reduce},
    {"ReduceMean", 17, reduce},        {"ReduceMin", 17, reduce},        {"ReduceProd", 17, reduce},
    {"ReduceSumSquare", 17, reduce},   {"Squeeze", 12, squeeze},         {"Unsqueeze", 12, squeeze},
    {"Split", 17, split_count},        {"Reshape", 13, reshape},         {"DFT", 19, dft},
    {"GridSample", 19, grid_sample},   {"RoiAlign", 15, roi_align},      {"AveragePool", 18, without_dilations},
    {"LpPool", 17, without_dilations}, {"QuantizeLinear", 22, quantize}, {"DequantizeLinear", 22, dequantize},
    {"Softmax", 12, softmax},          {"LogSoftmax", 12, softmax},      {"Hardmax", 12, softmax},
};

bool says(const OlderNode& o, const char* attr, std::initializer_list<const char*> values) {
  const std::string given = o.node.get_string(attr, "");
  return std::any_of(values.begin(), values.end(), [&](const char* v) { return given == v; });
}

bool is_last_axis(const OlderNode& o) {
  const auto rank = o.rank(0);
  const int64_t axis = o.node.get_int("axis", -1);
  return axis == -1 || (rank && axis == *rank - 1);
}

// Windows that would start in the padding behind the data count where they did not before.
bool counts_other_windows(const OlderNode& o) {
  if (o.node.get_int("ceil_mode", 0) == 0 || !o.operand(0)->shape || !o.info(o.node.outputs[0]).shape) return false;
  const Shape &in = *o.operand(0)->shape, &out = *o.info(o.node.outputs[0]).shape;
  const auto kernel = o.node.get_ints("kernel_shape");
  const size_t spatial = kernel.size();
  const auto pads = o.node.get_ints("pads", std::vector<int64_t>(2 * spatial, 0));
  const auto strides = o.node.get_ints("strides", std::vector<int64_t>(spatial, 1));
  const auto dilations = o.node.get_ints("dilations", std::vector<int64_t>(spatial, 1));
  if (in.size() != spatial + 2 || out.size() != in.size() || pads.size() != 2 * spatial) return false;
  for (size_t i = 0; i < spatial; i++) {
    if (!in[i + 2].is_const() || !out[i + 2].is_const()) continue;
    const int64_t window = dilations[i] * (kernel[i] - 1) + 1;
    const int64_t room = in[i + 2].value() + pads[i] + pads[i + spatial] - window;
    if ((room + strides[i] - 1) / strides[i] + 1 != out[i + 2].value()) return true;
  }
  return false;
}

bool has_form(const OlderNode& o, std::initializer_list<Form> forms) {
  return o.operand(0) && std::find(forms.begin(), forms.end(), o.operand(0)->form) != forms.end();
}
bool makes_tensors(const OlderNode& o) {
  return std::all_of(o.node.outputs.begin(), o.node.outputs.end(),
                     [&](TensorId t) { return t == kNoTensor || o.info(t).form == Form::Tensor; });
}

// What an operator could not do, although it was there.
struct Meaning {
  const char* op;
  int64_t until;
  bool (*differs)(const OlderNode&);
  const char* why;
};
const Meaning kMeanings[] = {
    {"GroupNormalization", 20, [](const OlderNode&) { return true; }, "where it has one scale for each group"},
    {"Pad", 18, [](const OlderNode& o) { return says(o, "mode", {"wrap"}); }, "which does not have the mode 'wrap'"},
    {"Resize", 18,
     [](const OlderNode& o) { return says(o, "coordinate_transformation_mode", {"half_pixel_symmetric"}); },
     "which does not have 'half_pixel_symmetric'"},
    {"ScatterElements", 17, [](const OlderNode& o) { return says(o, "reduction", {"max", "min"}); },
     "which does not have this reduction"},
    {"ScatterND", 17, [](const OlderNode& o) { return says(o, "reduction", {"max", "min"}); },
     "which does not have this reduction"},
    {"GridSample", 19, [](const OlderNode& o) { return o.rank(0) != 4; }, "where it works on images of two axes"},
    {"QuantizeLinear", 12, [](const OlderNode& o) { return !one_scale(o); }, "where it has one scale"},
    {"DequantizeLinear", 12, [](const OlderNode& o) { return !one_scale(o); }, "where it has one scale"},
    {"Softmax", 12, [](const OlderNode& o) { return !is_last_axis(o); }, "where it works on all axes from one on"},
    {"LogSoftmax", 12, [](const OlderNode& o) { return !is_last_axis(o); }, "where it works on all axes from one on"},
    {"Hardmax", 12, [](const OlderNode& o) { return !is_last_axis(o); }, "where it works on all axes from one on"},
    {"RoiAlign", 15, [](const OlderNode& o) { return o.node.has("coordinate_transformation_mode"); },
     "where it samples at output_half_pixel only"},
    {"AveragePool", 21, counts_other_windows, "where it has another number of windows"},
    {"MaxPool", 21, counts_other_windows, "where it has another number of windows"},
    {"LpPool", 21, counts_other_windows, "where it has another number of windows"},
    {"Identity", 13, [](const OlderNode& o) { return !has_form(o, {Form::Tensor}); }, "where it takes tensors only"},
    {"Identity", 15, [](const OlderNode& o) { return !has_form(o, {Form::Tensor, Form::Sequence}); },
     "where it takes no optionals"},
    {"If", 12, [](const OlderNode& o) { return !makes_tensors(o); }, "where its results are tensors"},
    {"Loop", 12, [](const OlderNode& o) { return !makes_tensors(o); }, "where its results are tensors"},
    {"OptionalGetElement", 17, [](const OlderNode& o) { return has_form(o, {Form::Tensor, Form::Sequence}); },
     "where it takes optionals only"},
    {"OptionalHasElement", 17, [](const OlderNode& o) { return has_form(o, {Form::Tensor, Form::Sequence}); },
     "where it takes optionals only"},
    {"Resize", 12, [](const OlderNode& o) { return !o.node.has_input(1) || !o.node.has_input(2); },
     "where it has all operands"},
    {"Mod", 27,
     [](const OlderNode& o) { return !o.node.get_int("fmod", 0) && o.operand(0) && is_float(o.operand(0)->dtype); },
     "where it takes integers only"},
};

}  // namespace

std::optional<int64_t> OlderNode::rank(size_t i) const {
  const TensorInfo* t = operand(i);
  return t && t->shape ? std::optional(static_cast<int64_t>(t->shape->size())) : std::nullopt;
}

void respell(OlderNode older) {
  for (const Spelling& s : kSpellings)
    if (older.node.op == s.op && older.opset <= s.until) s.spell(older);
}

std::string against_meaning(const OlderNode& older) {
  for (const Meaning& m : kMeanings)
    if (older.node.op == m.op && older.opset <= m.until && m.differs(older)) return m.why;
  return "";
}

}  // namespace ingot
