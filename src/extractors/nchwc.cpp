// com.microsoft.nchwc: what onnxruntime makes of convolution nets for itself, and writes if asked for the optimised
// file. Its images are [N, C / B, H, W, B] with the dims [N, C, H, W], where C is rounded up to blocks of B channels; B
// is 8, or 16 where the CPU has AVX-512. Here they are plain [N, C, H, W] again, with the rounded C, and the weights
// are put back into their order:
//
//   C of X   stored W [O, C, H, W]              meaning
//   >= B     [O / B][C / B][H][W][C % B][O % B]  blocks of input and output channels
//   < B      [O / B][C][H][W][O % B]             a first layer, or a depthwise convolution (C = 1)
#include "base/target.h"
#include "extractors/microsoft.h"

namespace ingot {
namespace {

constexpr const char* kDomain = "com.microsoft.nchwc";

// The file does not say what B was. Channels that are no multiple of 16 can only be blocks of 8, input channels beyond
// 8 that are not rounded to 8 only a first layer of blocks of 16; else the file is one for this CPU, as onnxruntime
// takes it.
int64_t block_of(const Rewriter& r) {
  for (const Node& n : r.graph.nodes) {
    if (n.domain != kDomain || n.op != "Conv" || !n.has_input(1)) continue;
    const ConstantPtr w = r.value(n.inputs[1]);
    if (!w || w->dims.size() != 4) continue;
    if (w->dims[0] % 16 != 0) return 8;
    if (w->dims[1] > 8 && w->dims[1] % 8 != 0) return 16;
  }
  return cpu_target().lanes == 16 ? 16 : 8;
}

// Weights in the order [O, C, H, W].
ConstantPtr in_order(const Rewriter& r, const Constant& w, int64_t block) {
  if (w.dtype != DType::F32 || w.dims.size() != 4 || w.dims[0] % block != 0)
    r.fail(ErrorKind::InvalidModel, "the weights are {} {}, expected f32 in blocks of {} channels", name(w.dtype),
           str(to_shape(w.dims)), block);
  const int64_t outs = w.dims[0], ins = w.dims[1], pixels = w.dims[2] * w.dims[3];
  const int64_t in_block = ins < block ? 1 : block;
  if (ins % in_block != 0) r.fail(ErrorKind::InvalidModel, "{} input channels are no blocks of {}", ins, block);
  std::vector<float> plain(static_cast<size_t>(w.elements()));
  const auto from = w.as<float>();
  size_t at = 0;
  for (int64_t o = 0; o < outs; o += block)
    for (int64_t i = 0; i < ins; i += in_block)
      for (int64_t p = 0; p < pixels; p++)
        for (int64_t ii = 0; ii < in_block; ii++)
          for (int64_t oo = 0; oo < block; oo++)
            plain[static_cast<size_t>(((o + oo) * ins + i + ii) * pixels + p)] = from[at++];
  return make_constant(DType::F32, w.dims, plain);
}

void conv(Rewriter& r) {
  const ConstantPtr w = r.value(r.need_input(1));
  if (!w) r.fail(ErrorKind::Unsupported, "its weights must be constants");
  r.set_input(1, r.constant(in_order(r, *w, block_of(r)), "weights"));
  fused_conv(r);
}

// Channels rounded up to whole blocks.
void reorder_input(Rewriter& r) {
  TensorId x = r.need_input(0);
  if (r.node.get_int("channels_last", 0)) x = r.emit("Transpose", {x}, {{"perm", std::vector<int64_t>{0, 3, 1, 2}}});
  const TensorId channels = r.emit("Shape", {x}, {{"start", int64_t{1}}, {"end", int64_t{2}}});
  const TensorId lack = r.emit("Mod", {r.emit("Neg", {channels}), r.ints({block_of(r)}, "block")});
  const TensorId pads = r.emit("Concat", {r.ints({0}, "none"), lack}, {{"axis", int64_t{0}}});
  r.become("Pad", {x, pads, kNoTensor, r.ints({1}, "axes")});
}

// The channels that were meant.
void reorder_output(Rewriter& r) {
  const int64_t channels = r.node.need_int("channels");
  const bool last = r.node.get_int("channels_last", 0) != 0;
  const std::vector<TensorId> operands = {r.need_input(0), r.ints({0}, "starts"), r.ints({channels}, "ends"),
                                          r.ints({1}, "axes")};
  if (!last) return r.become("Slice", operands);
  r.become("Transpose", {r.emit("Slice", operands)}, {{"perm", std::vector<int64_t>{0, 2, 3, 1}}});
}

void upsample(Rewriter& r) {
  const auto scales = r.node.get_ints("scales");
  const std::vector<float> factors(scales.begin(), scales.end());
  const TensorId by = r.constant(make_constant(DType::F32, {std::ssize(factors)}, factors), "scales");
  r.become("Resize", {r.need_input(0), kNoTensor, by},
           {{"mode", r.node.get_string("mode", "nearest")},
            {"nearest_mode", std::string("floor")},
            {"coordinate_transformation_mode", r.node.get_string("coordinate_transformation_mode", "asymmetric")}});
}

void same_name(Rewriter& r) { r.node.domain.clear(); }

constexpr Rule kRules[] = {
    {"Conv", 1, kAnyVersion, conv},
    {"ReorderInput", 1, kAnyVersion, reorder_input},
    {"ReorderOutput", 1, kAnyVersion, reorder_output},
    {"Upsample", 1, kAnyVersion, upsample},
    {"MaxPool", 1, kAnyVersion, same_name},
    {"AveragePool", 1, kAnyVersion, same_name},
    {"GlobalMaxPool", 1, kAnyVersion, same_name},
    {"GlobalAveragePool", 1, kAnyVersion, same_name},
};

}  // namespace

RuleTable nchwc_rules() { return {kDomain, kRules}; }

}  // namespace ingot
