// Resize (kernels/resize.h). scales, sizes and roi name all dims of the tensor as it lies in memory, or those in
// `axes`, which always count as in [N, C, spatial...]; see named_axes.
#include "kernels/resize.h"

#include <algorithm>
#include <cmath>

#include "ops/layout.h"

namespace ingot {
namespace {

std::optional<int64_t> choice(const std::string& value, std::initializer_list<const char*> names) {
  int64_t i = 0;
  for (const char* n : names) {
    if (value == n) return i;
    i++;
  }
  return std::nullopt;
}
std::optional<int64_t> mode_of(const Node& n) {
  return choice(n.get_string("mode", "nearest"), {"nearest", "linear", "cubic"});
}
std::optional<int64_t> transform_of(const Node& n) {
  return choice(n.get_string("coordinate_transformation_mode", "half_pixel"),
                {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
                 "tf_crop_and_resize"});
}
std::optional<int64_t> nearest_mode_of(const Node& n) {
  return choice(n.get_string("nearest_mode", "round_prefer_floor"),
                {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"});
}

// The axes that scales, sizes and roi name, as dims of the tensor in memory: with channels_last=1 they still count as
// in [N, C, spatial...] while the tensor is stored as [N, spatial..., C].
std::vector<int64_t> named_axes(const Node& node, int64_t rank) {
  std::vector<int64_t> axes = node.get_ints("axes");
  if (axes.empty())
    for (int64_t d = 0; d < rank; d++) axes.push_back(d);
  axes = normalized_axes(axes, rank);
  if (node.get_int("channels_last", 0) != 0)
    for (int64_t& a : axes)
      if (a > 0) a = a == 1 ? rank - 1 : a - 1;
  return axes;
}

// An optional operand given as an empty tensor is absent.
bool given(const TensorInfo& info) { return !info.shape || !product(*info.shape).is(0); }

std::optional<std::vector<double>> float_values(const TensorInfo& info) {
  if (!info.constant || info.constant->dtype != DType::F32) return std::nullopt;
  const auto v = info.constant->as<float>();
  return std::vector<double>(v.begin(), v.end());
}

// floor(n * scale); symbolic n only when the scale is a fraction whose denominator is a small power of two.
Dim scaled(const Dim& n, double scale) {
  if (n.is_const()) return static_cast<int64_t>(std::floor(static_cast<double>(n.value()) * scale));
  for (int64_t den = 1; den <= 1024; den *= 2) {
    const double num = scale * static_cast<double>(den);
    if (num == std::floor(num) && num < 0x1p40) return floor_div(n * static_cast<int64_t>(num), den);
  }
  return Dim::unknown();
}

// With an aspect ratio to keep, all named axes share one scale: the least or the greatest asked for.
void keep_aspect_ratio(InferContext& ctx, const std::string& policy, const std::vector<int64_t>& axes, Shape& out) {
  const Shape& in = ctx.shape(0);
  std::optional<double> scale;
  for (int64_t a : axes) {
    const Dim &from = in[static_cast<size_t>(a)], &to = out[static_cast<size_t>(a)];
    if (!from.is_const() || !to.is_const()) {
      for (int64_t b : axes) out[static_cast<size_t>(b)] = Dim::unknown();
      return;
    }
    const double s = static_cast<double>(to.value()) / static_cast<double>(from.value());
    scale = !scale ? s : policy == "not_larger" ? std::min(*scale, s) : std::max(*scale, s);
  }
  for (int64_t a : axes) {
    Dim& d = out[static_cast<size_t>(a)];
    d = static_cast<int64_t>(*scale * static_cast<double>(in[static_cast<size_t>(a)].value()) + 0.5);
  }
}

void check_attributes(InferContext& ctx, int64_t rank) {
  const Node& n = ctx.node;
  ctx.require(mode_of(n).has_value(), "mode '{}' is none of nearest, linear, cubic", n.get_string("mode", ""));
  ctx.require(transform_of(n).has_value(), "coordinate_transformation_mode '{}' is not known",
              n.get_string("coordinate_transformation_mode", ""));
  ctx.require(nearest_mode_of(n).has_value(), "nearest_mode '{}' is not known", n.get_string("nearest_mode", ""));
  std::vector<Dim> axes = to_shape(n.get_ints("axes"));
  normalized_axes(ctx, axes, rank);
  const std::string policy = n.get_string("keep_aspect_ratio_policy", "stretch");
  ctx.require(choice(policy, {"stretch", "not_larger", "not_smaller"}).has_value(),
              "keep_aspect_ratio_policy '{}' is not known", policy);
}

void infer(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  const Shape& in = ctx.shape(0);
  check_attributes(ctx, ctx.rank(0));
  const auto axes = named_axes(ctx.node, ctx.rank(0));
  const bool has_sizes = ctx.has(3) && given(ctx.in(3)), has_scales = !has_sizes && ctx.has(2) && given(ctx.in(2));
  ctx.require(has_sizes || has_scales, "needs scales or sizes");
  Shape out = in;
  auto set = [&](size_t count, auto&& size_of) {
    ctx.require(count == axes.size(), "{} {} for {} axes of {}", count, has_sizes ? "sizes" : "scales", axes.size(),
                str(in));
    for (size_t i = 0; i < count; i++) out[static_cast<size_t>(axes[i])] = size_of(i);
  };
  if (has_sizes) {
    const auto sizes = ctx.values(3);
    set(sizes ? sizes->size() : axes.size(), [&](size_t i) { return sizes ? (*sizes)[i] : Dim::unknown(); });
    const std::string policy = ctx.node.get_string("keep_aspect_ratio_policy", "stretch");
    if (policy != "stretch") keep_aspect_ratio(ctx, policy, axes, out);
  } else {
    const auto scales = float_values(ctx.in(2));
    if (!scales && ctx.at_run_time()) throw ValuesNeeded{2};
    set(scales ? scales->size() : axes.size(), [&](size_t i) {
      if (!scales) return Dim::unknown();
      ctx.require((*scales)[i] > 0 && (*scales)[i] < 0x1p31, "scale {} of axis {} is not a positive number",
                  (*scales)[i], i);
      return scaled(in[static_cast<size_t>(axes[i])], (*scales)[i]);
    });
  }
  product(out);
  for (size_t d = 0; d < in.size(); d++)
    ctx.require(!in[d].is(0) || !out[d].is_const() || out[d].is(0), "{} cannot be resized to {}: dim {} is empty",
                str(in), str(out), d);
  ctx.set_shape(0, std::move(out));
}

// Every dim of the tensor as an axis of the kernel.
std::vector<ResizeAxis> kernel_axes(const LowerContext& ctx, int64_t transform) {
  const auto in = ctx.dims(0), out = ctx.out_dims(0);
  std::vector<ResizeAxis> dims;
  for (size_t d = 0; d < in.size(); d++) dims.push_back({in[d], out[d], in[d] != out[d], 0, -1, 1});
  const auto axes = named_axes(ctx.node, static_cast<int64_t>(in.size()));
  const bool has_sizes = ctx.has(3) && given(ctx.in(3));
  const bool stretch = ctx.node.get_string("keep_aspect_ratio_policy", "stretch") == "stretch";
  const auto scales = has_sizes ? std::nullopt : float_values(ctx.in(2));
  double common = 0;
  for (size_t i = 0; has_sizes && !stretch && i < axes.size(); i++) {
    const double s = static_cast<double>(ctx.values(3)[i]) / static_cast<double>(in[static_cast<size_t>(axes[i])]);
    const bool least = ctx.node.get_string("keep_aspect_ratio_policy", "") == "not_larger";
    common = i == 0 ? s : least ? std::min(common, s) : std::max(common, s);
  }
  const bool has_roi = transform == kCropAndResize && ctx.has(1) && given(ctx.in(1));
  for (size_t i = 0; i < axes.size(); i++) {
    ResizeAxis& a = dims[static_cast<size_t>(axes[i])];
    if (scales)
      a.scale = (*scales)[i];
    else
      a.scale = common > 0 ? common : static_cast<double>(a.out) / static_cast<double>(a.in);
    if (a.scale != 1) a.resized = 1;  // sizes may agree while coordinates do not
    if (has_roi) a.roi = static_cast<int64_t>(i), a.resized = 1;
  }
  return dims;
}

// What is not resized joins its neighbour of the kind; leading ones become `outer`.
void set_axes(const LowerContext& ctx, const std::vector<ResizeAxis>& dims, ResizeParams& p) {
  p.outer = 1;
  for (const ResizeAxis& a : dims) {
    if (!a.resized && p.rank == 0) {
      p.outer *= a.in;
    } else if (!a.resized && !p.axis[p.rank - 1].resized) {
      p.axis[p.rank - 1].in *= a.in;
      p.axis[p.rank - 1].out *= a.out;
    } else {
      if (p.rank == kMaxResizeRank) ctx.fail("resizes more than the {} separate dims supported", kMaxResizeRank);
      if (a.in > INT32_MAX || a.out > INT32_MAX) ctx.fail("an axis of {} elements is too long", std::max(a.in, a.out));
      p.axis[p.rank++] = a;
    }
  }
}

// How often the last dim repeats each element when that is all it does; 0 otherwise.
int64_t repeats(const ResizeParams& p) {
  const ResizeAxis& a = p.axis[p.rank - 1];
  if (a.roi >= 0 || p.transform == kCropAndResize || a.out % a.in != 0) return 0;
  const int64_t n = a.out / a.in;
  for (int64_t o = 0; o < a.out; o++)
    if (nearest_index(a, p.nearest_mode, resize_coordinate(a, p.transform, 0, 1, o)) != o / n) return 0;
  return n;
}

void lower_nearest(LowerContext& ctx, ResizeParams& p) {
  Step& step = ctx.step(ingot_resize_nearest_kernel);
  p.block = 1;
  if (!p.axis[p.rank - 1].resized) p.block = p.axis[--p.rank].in;
  p.repeat = repeats(p);
  const ResizeAxis& last = p.axis[p.rank - 1];
  step.operands = {ctx.input(0), ctx.input(1), ctx.output(0)};
  step.units = product_of(ctx.out_dims(0)) / (last.out * p.block);
  step.grain = grain_for(last.out * p.block * p.size);
  step.scratch = last.out * 8;
  step.params = params_of(p);
}

int64_t tap_count(const ResizeAxis& a, const ResizeParams& p) {
  const double reach = p.mode == kCubic ? 2 : 1, stretch = p.antialias ? std::min(a.scale, 1.0) : 1;
  return 2 - 2 * static_cast<int64_t>(std::floor(-reach / stretch) + 1);
}

void lower_interpolation(LowerContext& ctx, ResizeParams& p) {
  const DType dtype = ctx.in(0).dtype;
  if (!is_integer(dtype) && (!is_float(dtype) || bits(dtype) < 16))
    ctx.fail("cannot interpolate elements of type {}", name(dtype));
  int64_t slab = 1, result = 1;
  for (int64_t d = 1; d < p.rank; d++) slab *= p.axis[d].in, result *= p.axis[d].out;
  // What a pass leaves: output sizes up to its dim, input sizes after it.
  int64_t size = slab;
  p.buffer = slab;
  int64_t tables = 0;
  for (int64_t d = 0; d < p.rank; d++) {
    ResizeAxis& a = p.axis[d];
    if (!a.resized) continue;
    a.taps = tap_count(a, p);
    tables += (d == 0 ? 1 : a.out) * a.taps * 16;
    if (d > 0) size = size / a.in * a.out;
    p.buffer = std::max(p.buffer, size);
  }
  Step& step = ctx.step(ingot_resize_kernel);
  step.operands = {ctx.input(0), ctx.input(1), ctx.output(0)};
  step.units = p.outer * p.axis[0].out;
  step.grain = grain_for(result * p.size);
  step.scratch = 2 * p.buffer * 8 + tables;
  step.params = params_of(p);
}

void lower(LowerContext& ctx) {
  if (product_of(ctx.out_dims(0)) == 0) return;
  const Node& n = ctx.node;
  ResizeParams p{};
  p.dtype = static_cast<int64_t>(ctx.in(0).dtype);
  p.size = element_bytes(ctx, ctx.in(0).dtype);
  p.mode = *mode_of(n);
  p.transform = *transform_of(n);
  p.nearest_mode = *nearest_mode_of(n);
  p.antialias = n.get_int("antialias", 0) != 0;
  p.exclude_outside = n.get_int("exclude_outside", 0) != 0;
  p.cubic_a = static_cast<double>(n.get_float("cubic_coeff_a", -0.75F));
  p.extrapolation = static_cast<double>(n.get_float("extrapolation_value", 0));
  if (ctx.has(1) && given(ctx.in(1))) {
    p.roi_dtype = static_cast<int64_t>(ctx.in(1).dtype);
    p.roi_count = product_of(ctx.dims(1)) / 2;
  }
  set_axes(ctx, kernel_axes(ctx, p.transform), p);
  if (p.rank == 0) return ctx.view(0, 0);
  if (p.mode == kNearest)
    lower_nearest(ctx, p);
  else
    lower_interpolation(ctx, p);
}

}  // namespace

void register_resize(OpRegistry& r) { r.add({"Resize", "", 1, 4, 1, 1, infer, lower}); }

}  // namespace ingot
