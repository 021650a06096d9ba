// MatMulInteger and ConvInteger: products of 8-bit matrices, exact in 32 bits:  Y = (A - a_zero) (B - b_zero).
// ingot.MatMulInteger and ingot.ConvInteger have an epilogue over x0 = Y and the operands after b_zero, whose result
// may be of any type; the first has transB, the second channels_last. B may be packed ahead: attributes "packed_form",
// the name of a PackedForm, "packed_shape", the dims it had, and "packed_signed", 1 if it was i8 and 0 if it was u8.
//
// What the kernels for bytes do not take (zero points of other shapes, groups of few channels whose filters are not
// constant) is centred into i32 temporaries and multiplied by the kernels for that type.
#include "ops/quantized_product.h"

#include <algorithm>
#include <cstddef>

#include "kernels/conv_any.h"
#include "kernels/depthwise_i8.h"
#include "kernels/pad.h"
#include "ops/conv.h"
#include "ops/layout.h"
#include "ops/product.h"
#include "ops/quantize.h"

namespace ingot {
namespace {

using kernel::GemmI8Params;

constexpr size_t kA = 0, kB = 1, kAZero = 2, kBZero = 3, kFirstExtra = 4;

constexpr std::pair<PackedForm, std::string_view> kPackedForms[] = {
    {PackedForm::Chained, "chained"}, {PackedForm::Pairs, "pairs"}, {PackedForm::Rows, "rows"},
    {PackedForm::Dot, "dot"},         {PackedForm::Tiles, "tiles"}, {PackedForm::Depthwise, "depthwise"},
};

// B as it was before it was packed.
bool is_packed(const Node& node) { return node.has("packed_form"); }
Shape b_shape(const InferContext& ctx) {
  return is_packed(ctx.node) ? to_shape(ctx.node.get_ints("packed_shape")) : ctx.shape(kB);
}
std::vector<int64_t> b_dims(const LowerContext& ctx) {
  return is_packed(ctx.node) ? ctx.node.get_ints("packed_shape") : ctx.dims(kB);
}
DType b_type(const Node& node, DType operand) {
  return is_packed(node) ? (node.get_int("packed_signed", 1) ? DType::I8 : DType::U8) : operand;
}

template <class Context>
Expr epilogue_of(const Context& ctx) {
  if (ctx.node.domain.empty()) return {};
  std::vector<DType> extras;
  for (size_t i = kFirstExtra; i < ctx.input_count(); i++) extras.push_back(ctx.in(i).dtype);
  return parse_epilogue(ctx.node, DType::I32, extras);
}

void check_types(InferContext& ctx) {
  const auto form = packed_form(ctx.node);
  ctx.require(form != PackedForm::Depthwise || ctx.node.op == "ConvInteger",
              "packed_form is '{}', which is for filters", form ? name(*form) : "");
  const Expr e = epilogue_of(ctx);
  ctx.set_dtype(0, e.results.empty() ? DType::I32 : e.result_types[0]);
  for (auto [x, zero] : {std::pair{kA, kAZero}, std::pair{kB, kBZero}}) {
    const DType t = x == kB ? b_type(ctx.node, ctx.dtype(x)) : ctx.dtype(x);
    ctx.require(is_byte(t), "operand {} is {}, expected u8 or i8", x, name(t));
    ctx.require(!ctx.has(zero) || ctx.dtype(zero) == t, "operand {} is {} and its zero point {}", x, name(t),
                ctx.has(zero) ? name(ctx.dtype(zero)) : "");
  }
}

// One number for each row of A as a tensor that broadcasts to it.
template <class Dims>
Dims along_rows(Dims dims) {
  if (dims.size() == 1) dims.push_back(1);
  return dims;
}

void infer_matmul(InferContext& ctx) {
  check_types(ctx);
  Shape a = ctx.shape(kA), b = b_shape(ctx);
  ctx.require(!a.empty() && !b.empty(), "a scalar operand: A is {}, B is {}", str(a), str(b));
  const bool row = a.size() == 1, column = b.size() == 1;
  if (row) a.insert(a.begin(), 1);
  if (column) b.push_back(1);
  if (ctx.node.get_int("transB", 0)) std::swap(b[b.size() - 1], b[b.size() - 2]);
  const Dim &ka = a.back(), &kb = b[b.size() - 2];
  ctx.require(!ka.is_const() || !kb.is_const() || ka == kb, "A {} and B {} do not fit", str(ctx.shape(kA)),
              str(b_shape(ctx)));
  Shape out = broadcast(ctx, Shape(a.begin(), a.end() - 2), Shape(b.begin(), b.end() - 2));
  if (ctx.has(kAZero)) require_broadcast(ctx, kAZero, along_rows(ctx.shape(kAZero)), a);
  if (ctx.has(kBZero)) require_broadcast(ctx, kBZero, ctx.shape(kBZero), b);
  if (!row) out.push_back(a[a.size() - 2]);
  if (!column) out.push_back(b.back());
  if (!ctx.node.domain.empty()) require_extras(ctx, kFirstExtra, out);
  ctx.set_shape(0, std::move(out));
}

void infer_conv(InferContext& ctx) {
  check_types(ctx);
  const Shape &x = ctx.shape(kA), w = b_shape(ctx);
  Shape out = conv_shape(ctx, x, w);
  auto need = [&](size_t i, bool per_channel) {
    if (!ctx.has(i)) return;
    const Shape& s = ctx.shape(i);
    const bool one = s.empty() || (s.size() == 1 && (!s[0].is_const() || s[0].is(1)));
    const bool channels = s.size() == 1 && (!s[0].is_const() || !w[0].is_const() || s[0] == w[0]);
    ctx.require(one || (per_channel && channels), "operand {} is {}, expected {}", i, str(s),
                per_channel ? "a scalar or one number for each channel of Y" : "a scalar");
  };
  need(kAZero, false);
  need(kBZero, true);
  if (!ctx.node.domain.empty()) require_extras(ctx, kFirstExtra, out);
  ctx.set_shape(0, std::move(out));
}

// The result: where it goes, its dims, the epilogue over it and that one's operands.
struct Result {
  Operand operand;
  std::vector<int64_t> dims;
  Expr expr;
  std::vector<DenseOperand> extras;
};

Result result_of(const LowerContext& ctx) {
  Result r{ctx.output(0), ctx.out_dims(0), epilogue_of(ctx), {}};
  for (size_t i = kFirstExtra; i < ctx.input_count(); i++) r.extras.push_back({ctx.input(i), ctx.dims(i)});
  return r;
}

// Accumulators in `acc`, then the epilogue as a step of its own.
void emit_epilogue(LowerContext& ctx, const Result& r, Operand acc) {
  std::vector<DenseOperand> inputs = {{acc, r.dims}};
  inputs.insert(inputs.end(), r.extras.begin(), r.extras.end());
  emit_elementwise(ctx, r.expr, inputs, {r.operand}, r.dims);
}
Operand accumulators(LowerContext& ctx, const Result& r) {
  return r.expr.results.empty() ? r.operand : ctx.shared_temporary(byte_size(DType::I32, product_of(r.dims)));
}

// --- with ingot_gemm_i8_* ---

bool known_zero(const TensorInfo& info) {
  const ConstantPtr& c = info.constant;
  return c && std::all_of(c->bytes.begin(), c->bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

// How the kernel reads zero points of which there are `count`, given for each of `each` rows or columns; nothing where
// they lie in another way.
std::optional<int64_t> zero_kind(const LowerContext& ctx, size_t i, int64_t each, bool of_rows) {
  if (!ctx.has(i) || known_zero(ctx.in(i))) return kernel::kNoZero;
  const auto dims = ctx.dims(i);
  if (product_of(dims) == 1) return kernel::kOneZero;
  const bool in_order = of_rows ? dims.size() == 1 || dims.back() == 1 : dims.back() == each;
  if (product_of(dims) == each && in_order) return kernel::kZeroPerRow;
  return std::nullopt;
}

GemmI8Params plain_params(const LowerContext& ctx) {
  GemmI8Params p{};
  const auto packed = packed_form(ctx.node);
  p.form = packed ? static_cast<int64_t>(*packed) : i8_panel_form(ctx.target).value_or(kernel::kI8Pairs);
  p.b_packed = packed.has_value();
  p.a_signed = ctx.in(kA).dtype == DType::I8;
  p.b_signed = b_type(ctx.node, ctx.in(kB).dtype) == DType::I8;
  std::fill(std::begin(p.row_dims), std::end(p.row_dims), 1);
  std::fill(std::begin(p.runs), std::end(p.runs), 1);
  std::fill(std::begin(p.batch), std::end(p.batch), 1);
  return p;
}

// A step of a kernel with an epilogue that stores: in it where its operands can be read by rows and columns, otherwise
// after it. The kernel's own operands are {inputs..., result, more...}.
template <class Params>
void emit_with_epilogue(LowerContext& ctx, const Kernel& kernel, Params p, const Result& r, Step step,
                        const std::vector<Operand>& before, const std::vector<Operand>& after) {
  const std::vector<int64_t> rows(r.dims.begin(), r.dims.end() - (r.dims.size() > 1 ? 1 : 0));
  bool fused = r.extras.size() <= kernel::kMaxEpilogueOperands;
  for (size_t i = 0; fused && i < r.extras.size(); i++) {
    const auto o = epilogue_operand(r.extras[i].dims, rows);
    fused = o.has_value();
    if (fused) p.extra[i] = *o;
  }
  p.extras = fused ? static_cast<int64_t>(r.extras.size()) : 0;
  const Operand target = fused ? r.operand : accumulators(ctx, r);
  step.expr = std::make_shared<Expr>(fused && !r.expr.results.empty() ? r.expr : parse_expr("acc", {DType::I32}));
  const DType type = step.expr->result_types.at(0);
  p.c_bytes = type == DType::U8 ? kernel::kUnsignedBytes : type == DType::I8 ? kernel::kSignedBytes : kernel::kNoBytes;
  step.kernel = &kernel;
  step.operands = before;
  step.operands.push_back(target);
  step.operands.insert(step.operands.end(), after.begin(), after.end());
  if (fused)
    for (const DenseOperand& e : r.extras) step.operands.push_back(e.operand);
  step.params = params_of(p);
  ctx.steps.push_back(std::move(step));
  if (!fused) emit_epilogue(ctx, r, target);
}

void emit_gemm(LowerContext& ctx, GemmI8Params p, Operand a, Operand b, const Result& r) {
  complete(p, ctx.target);
  Step s;
  s.sizes = kernel::kGemmI8Sizes;
  s.units = kernel::i8_units(p);
  // About two products of bytes take the time of one of floats.
  const int64_t results = p.batch[0] * p.batch[1] * p.batch[2] * p.m * p.n;
  s.grain = grain_for_products(results / std::max<int64_t>(1, s.units) * kernel::i8_padded_depth(p) / 2);
  s.scratch = kernel::i8_scratch_bytes(p);
  s.specialise = p.m * p.n * p.run_bytes >= 4096;
  emit_with_epilogue(ctx, kernel::i8_kernel(p.form), p, r, std::move(s), {a, b},
                     {ctx.input(kAZero), ctx.input(kBZero)});
}

struct MatmulDims {
  std::vector<int64_t> a, b, batch;
  int64_t m, n, k;
  bool trans_b;
};

MatmulDims matmul_dims(const LowerContext& ctx) {
  MatmulDims d;
  d.a = ctx.dims(kA);
  d.b = b_dims(ctx);
  d.trans_b = ctx.node.get_int("transB", 0) != 0;
  if (d.a.size() == 1) d.a.insert(d.a.begin(), 1);
  if (d.b.size() == 1) d.b.push_back(1);
  d.batch.resize(std::max(d.a.size(), d.b.size()) - 2, 1);
  for (const auto* dims : {&d.a, &d.b})
    for (size_t i = 0; i + 2 < dims->size(); i++) {
      int64_t& size = d.batch[d.batch.size() - 1 - i];
      if (size == 1) size = (*dims)[dims->size() - 3 - i];
    }
  d.m = d.a[d.a.size() - 2];
  d.k = d.a.back();
  d.n = d.b[d.b.size() - (d.trans_b ? 2 : 1)];
  return d;
}

std::vector<int64_t> batch_strides(const std::vector<int64_t>& dims, const std::vector<int64_t>& batch) {
  std::vector<int64_t> inner(dims.begin(), dims.end() - 2);
  auto strides = broadcast_strides(inner, batch);
  for (int64_t& s : strides) s *= dims[dims.size() - 1] * dims[dims.size() - 2];
  return strides;
}

// False where the kernel does not take it.
bool emit_fast_matmul(LowerContext& ctx, const MatmulDims& d, const Result& r) {
  GemmI8Params p = plain_params(ctx);
  const int64_t entries = product_of(d.batch);
  const bool one_b = product_of(d.b) == d.n * d.k;
  auto a_zero = zero_kind(ctx, kAZero, entries * d.m, true), b_zero = zero_kind(ctx, kBZero, d.n, false);
  if (!a_zero || !b_zero || (d.batch.size() > 3 && !one_b) || d.k == 0) return false;
  p.a_zero = *a_zero;
  p.b_zero = *b_zero;
  p.m = d.m;
  p.n = d.n;
  p.run_bytes = d.k;
  p.b_row = d.trans_b ? 1 : d.n;
  p.b_col = d.trans_b ? d.k : 1;
  p.c_row = d.n;
  if (one_b && product_of(d.a) == entries * d.m * d.k) {
    p.m *= entries;  // one B for a dense stack of As
  } else {
    const auto a = batch_strides(d.a, d.batch), b = batch_strides(d.b, d.batch);
    if (d.batch.size() > 3) return false;
    for (size_t i = 0; i < d.batch.size(); i++) {
      const size_t at = 3 - d.batch.size() + i;
      p.batch[at] = d.batch[i];
      p.a_batch[at] = a[i];
      p.b_batch[at] = b[i];
    }
  }
  p.row_dims[3] = p.m;
  p.row_stride[3] = d.k;
  p.entry_row = p.m;
  emit_gemm(ctx, p, ctx.input(kA), ctx.input(kB), r);
  return true;
}

// --- by way of i32 ---

// Operand x minus its zero point, which broadcasts with `zero_dims`.
DenseOperand centred(LowerContext& ctx, size_t x, size_t zero, const std::vector<int64_t>& dims,
                     const std::vector<int64_t>& zero_dims) {
  const DenseOperand out = {ctx.shared_temporary(byte_size(DType::I32, product_of(dims))), dims};
  std::vector<DenseOperand> inputs = {{ctx.input(x), dims}};
  std::vector<DType> types = {ctx.in(x).dtype};
  if (ctx.has(zero)) {
    inputs.push_back({ctx.input(zero), zero_dims});
    types.push_back(ctx.in(zero).dtype);
  }
  emit_elementwise(ctx, centred_expr(types), inputs, {out.operand}, dims);
  return out;
}

std::vector<int64_t> dims_of(const LowerContext& ctx, size_t i) {
  return ctx.has(i) ? ctx.dims(i) : std::vector<int64_t>{};
}

void emit_slow_matmul(LowerContext& ctx, const MatmulDims& d, const Result& r) {
  const DenseOperand a = centred(ctx, kA, kAZero, d.a, along_rows(dims_of(ctx, kAZero)));
  const DenseOperand b = centred(ctx, kB, kBZero, d.b, dims_of(ctx, kBZero));
  Product p;
  p.dtype = DType::I32;
  p.batch = d.batch;
  p.m = d.m;
  p.k = d.k;
  p.n = d.n;
  p.a = {a.operand, p.k, 1, batch_strides(d.a, p.batch)};
  p.b = {b.operand, d.trans_b ? 1 : p.n, d.trans_b ? p.k : 1, batch_strides(d.b, p.batch)};
  const Operand acc = accumulators(ctx, r);
  emit_product(ctx, p, {}, {}, acc);
  if (!r.expr.results.empty()) emit_epilogue(ctx, r, acc);
}

void lower_matmul(LowerContext& ctx) {
  const MatmulDims d = matmul_dims(ctx);
  const Result r = result_of(ctx);
  if (product_of(r.dims) == 0) return;
  if (!emit_fast_matmul(ctx, d, r)) emit_slow_matmul(ctx, d, r);
}

// --- convolution ---

// One number, or one for each channel of Y, as a tensor that broadcasts to [M, C/group, ...].
std::vector<int64_t> per_channel(const std::vector<int64_t>& dims, size_t from_back) {
  std::vector<int64_t> out(from_back, 1);
  out[0] = product_of(dims);
  return out;
}

void emit_slow_conv(LowerContext& ctx, const Result& r) {
  const auto x_dims = ctx.dims(kA), w_dims = ctx.dims(kB);
  const size_t rank = x_dims.size();
  const DenseOperand x = centred(ctx, kA, kAZero, x_dims, {});
  const DenseOperand w = centred(ctx, kB, kBZero, w_dims, per_channel(dims_of(ctx, kBZero), rank));
  const Operand acc = accumulators(ctx, r);
  emit_conv_any(ctx, ingot_conv_i32_kernel, {x.operand, x_dims}, {w.operand, w_dims}, {acc, r.dims});
  if (!r.expr.results.empty()) emit_epilogue(ctx, r, acc);
}

// The image [N, spatial..., C] with its padding, filled with the zero point, around it; every byte xored with flip.
Operand padded(LowerContext& ctx, Operand x, std::vector<int64_t>& dims, const Window& w, int64_t flip) {
  if (std::all_of(w.begin.begin(), w.begin.end(), [](int64_t p) { return p == 0; }) &&
      std::all_of(w.end.begin(), w.end.end(), [](int64_t p) { return p == 0; }))
    return x;
  PadParams p{};
  p.rank = static_cast<int64_t>(dims.size()) - 1;  // the last spatial dim and the channels are one
  p.size = 1;
  p.mode = kPadConstant;
  p.flip = flip;
  std::vector<int64_t> to = dims;
  for (size_t d = 0; d < w.rank(); d++) to[d + 1] += w.begin[d] + w.end[d];
  int64_t stride = 1;
  for (size_t d = dims.size() - 1; d-- > 0;) {
    const int64_t channels = d + 2 == dims.size() ? dims.back() : 1;
    p.dims[d] = to[d] * channels;
    p.kept[d] = dims[d] * channels;
    p.before[d] = (d == 0 ? 0 : w.begin[d - 1]) * channels;
    p.stride[d] = stride;
    stride *= p.kept[d];
  }
  const Operand out = ctx.shared_temporary(product_of(to) + kernel::kI8Slack);
  Step& s = ctx.step(ingot_pad_kernel);
  s.operands = {x, ctx.input(kAZero), out};
  s.params = params_of(p);
  s.units = product_of(to, 0, to.size() - 2);
  s.grain = grain_for(to[to.size() - 2] * to.back());
  dims = to;
  return out;
}

// A convolution over an image channels last, with its padding in place.
struct Image {
  Operand operand;
  bool is_padded;                // a copy with its padding, flipped if asked for; bytes behind it may be read
  std::vector<int64_t> in, out;  // [N, spatial..., C]
  std::vector<int64_t> w;        // dims of the weights
  Window window;
  int64_t image, step[3], tap[3], size[3];  // bytes between images, output pixels and taps; the result's spatial dims
};

Image image_of(LowerContext& ctx, const Result& r, int64_t flip) {
  const Node& node = ctx.node;
  const bool last = channels_last(node);
  Image i{ctx.input(kA),
          false,
          as_channels_last(ctx.dims(kA), last),
          as_channels_last(r.dims, last),
          b_dims(ctx),
          {},
          0,
          {},
          {},
          {}};
  i.window = window_of(node, i.in.size() - 2, {i.w.begin() + 2, i.w.end()});
  resolve_pads(i.window, {i.in.begin() + 1, i.in.end() - 1});
  if (!last) {
    const Operand moved = ctx.shared_temporary(product_of(i.in));
    emit_to_last(ctx, i.operand, moved, i.in, 1, false);
    i.operand = moved;
  }
  const Operand whole = padded(ctx, i.operand, i.in, i.window, flip);
  i.is_padded = whole.kind != i.operand.kind || whole.id != i.operand.id;
  i.operand = whole;
  const auto strides = strides_of(i.in);
  std::vector<int64_t> step, tap;
  for (size_t d = 0; d < i.window.rank(); d++) {
    step.push_back(i.window.stride[d] * strides[d + 1]);
    tap.push_back(i.window.dilation[d] * strides[d + 1]);
  }
  i.image = strides[0];
  spread(i.step, step, 0);
  spread(i.tap, tap, 0);
  spread(i.size, {i.out.begin() + 1, i.out.end() - 1}, 1);
  return i;
}

// emit(result) makes the result channels last; where the model has it otherwise, accumulators are moved and the
// epilogue comes after that.
template <class Emit>
void emit_in_layout(LowerContext& ctx, const Result& r, const std::vector<int64_t>& out, const Emit& emit) {
  if (channels_last(ctx.node)) return emit(r);
  const Operand moved = ctx.shared_temporary(byte_size(DType::I32, product_of(out)));
  emit(Result{moved, out, {}, {}});
  const Operand acc = accumulators(ctx, r);
  emit_to_last(ctx, moved, acc, out, 4, true);
  if (!r.expr.results.empty()) emit_epilogue(ctx, r, acc);
}

// Filters [M, C/group, kernel...] with their channels last, as an image has them.
Operand filters_last(LowerContext& ctx, const std::vector<int64_t>& w) {
  const auto last = as_channels_last(w, false);
  const Operand out = ctx.shared_temporary(product_of(w));
  emit_to_last(ctx, ctx.input(kB), out, last, 1, false);
  return out;
}

void emit_grouped(LowerContext& ctx, const Result& r, int64_t a_zero, int64_t b_zero) {
  GemmI8Params p = plain_params(ctx);
  const bool can_flip = p.a_signed && kernel::i8_in_panels(p.form);
  const Image i = image_of(ctx, r, can_flip ? 0x80 : 0);
  const int64_t groups = ctx.node.get_int("group", 1);
  p.a_flipped = can_flip && i.is_padded;
  p.a_zero = a_zero;
  p.b_zero = b_zero;
  // Sums of rows would count what is behind, except in panels.
  p.a_slack = i.is_padded && (kernel::i8_in_panels(p.form) || (p.b_signed && p.b_zero == kernel::kNoZero));
  p.m = product_of(i.out) / i.out.back();
  p.n = i.w[0] / groups;
  p.batch[2] = groups;
  p.a_batch[2] = i.w[1];
  p.b_batch[2] = product_of(ctx.dims(kB)) / groups;
  p.b_row = 1;
  p.b_col = product_of(i.w, 1);
  p.entry_col = p.n;
  p.c_row = i.out.back();
  const FilterRuns runs = filter_runs(i.window, groups, i.w);
  std::copy(std::begin(runs.runs), std::end(runs.runs), p.runs);
  std::copy(std::begin(i.tap), std::end(i.tap), p.run_stride);
  p.run_bytes = runs.run_bytes;
  p.row_dims[0] = i.out[0];
  p.row_stride[0] = i.image;
  for (int d = 0; d < 3; d++) {
    p.row_dims[d + 1] = i.size[d];
    p.row_stride[d + 1] = i.step[d];
  }
  const Operand w = p.b_packed ? ctx.input(kB) : filters_last(ctx, i.w);
  emit_in_layout(ctx, r, i.out, [&](const Result& to) { emit_gemm(ctx, p, i.operand, w, to); });
}

void emit_depthwise(LowerContext& ctx, const Result& r, int64_t x_zero) {
  const Image i = image_of(ctx, r, 0);
  kernel::DepthwiseI8Params p{};
  p.x_signed = ctx.in(kA).dtype == DType::I8;
  p.x_zero = x_zero;
  p.channels = i.out.back();
  p.batch = i.out[0];
  p.image = i.image;
  spread(p.kernel, i.window.kernel, 1);
  std::copy(std::begin(i.size), std::end(i.size), p.out);
  std::copy(std::begin(i.step), std::end(i.step), p.step);
  std::copy(std::begin(i.tap), std::end(i.tap), p.tap);
  Step s;
  s.sizes = kernel::kDepthwiseI8Sizes;
  s.units = p.batch * p.out[0] * p.out[1];
  s.grain = grain_for(p.out[2] * p.channels * product_of(i.window.kernel));
  s.specialise = true;
  emit_in_layout(ctx, r, i.out, [&](const Result& to) {
    emit_with_epilogue(ctx, kernel::ingot_depthwise_i8_kernel, p, to, s, {i.operand, ctx.input(kB)},
                       {ctx.input(kAZero)});
  });
}

// False where there is no kernel.
bool emit_fast_conv(LowerContext& ctx, const Result& r) {
  const Node& node = ctx.node;
  const auto w = b_dims(ctx);
  if (!is_packed(node) && (!is_grouped_product(node.get_int("group", 1), w) || product_of(w) == 0)) return false;
  const auto x_zero = zero_kind(ctx, kAZero, 1, true), w_zero = zero_kind(ctx, kBZero, w[0], false);
  if (!x_zero || !w_zero) return false;
  if (packed_form(node) == PackedForm::Depthwise)
    emit_depthwise(ctx, r, *x_zero);
  else
    emit_grouped(ctx, r, *x_zero, *w_zero);
  return true;
}

void lower_conv(LowerContext& ctx) {
  const Result r = result_of(ctx);
  if (product_of(r.dims) == 0) return;
  if (!emit_fast_conv(ctx, r)) emit_slow_conv(ctx, r);
}

}  // namespace

std::string_view name(PackedForm form) {
  for (const auto& [value, text] : kPackedForms)
    if (value == form) return text;
  fail(ErrorKind::Internal, "no packed form {}", static_cast<int64_t>(form));
}
std::optional<PackedForm> packed_form_from_name(std::string_view wanted) {
  for (const auto& [value, text] : kPackedForms)
    if (text == wanted) return value;
  return std::nullopt;
}
std::optional<PackedForm> packed_form(const Node& node) {
  if (!node.has("packed_form")) return std::nullopt;
  const std::string wanted = node.get_string("packed_form", "");
  const auto form = packed_form_from_name(wanted);
  if (!form)
    invalid_model("{}: packed_form is '{}', expected chained, pairs, rows, dot, tiles or depthwise", node.label(),
                  wanted);
  return form;
}

std::optional<kernel::I8Form> i8_panel_form(const Target& target) {
  if (target.has_byte_tiles()) return kernel::kI8Tiles;
  if (target.adds_byte_products()) return kernel::kI8Dot;
  return std::nullopt;
}

void complete(GemmI8Params& p, const Target& target) {
  p.lanes = target.lanes;
  // Dims of rows that follow each other in memory are one: rows of a tile are then the same distance apart.
  for (int d = 3; d > 0 && p.row_stride[d - 1] == p.row_dims[3] * p.row_stride[3]; d--) {
    p.row_dims[3] *= p.row_dims[d - 1];
    for (int e = d - 1; e > 0; e--) p.row_dims[e] = p.row_dims[e - 1], p.row_stride[e] = p.row_stride[e - 1];
    p.row_dims[0] = 1;
  }
  p.row_groups = kernel::i8_row_groups(p.form, p.m);
  if (!kernel::i8_in_panels(p.form)) return;
  p.panel = kernel::i8_panel_columns(p.form, p.lanes, p.n);
  p.a_packing = kernel::i8_must_copy(p);
}

FilterRuns filter_runs(const Window& window, int64_t groups, const std::vector<int64_t>& w) {
  FilterRuns f{};
  spread(f.runs, window.kernel, 1);
  f.taps_joined = groups == 1 && window.dilation.back() == 1;
  f.run_bytes = w[1];
  if (f.taps_joined) {
    f.run_bytes *= f.runs[2];
    f.runs[2] = 1;
  }
  return f;
}

bool is_grouped_product(int64_t groups, const std::vector<int64_t>& w) {
  return groups == 1 || (w[0] / groups >= 4 && w[1] >= 4);
}
bool is_depthwise(int64_t groups, const std::vector<int64_t>& w) {
  return groups == w[0] && w[1] == 1 && product_of(w, 2) <= kernel::kMaxDepthwiseTaps;
}

void register_quantized_product(OpRegistry& r) {
  r.add({"MatMulInteger", "", 2, 4, 1, 1, infer_matmul, lower_matmul});
  r.add({"MatMulInteger", "ingot", 2, -1, 1, 1, infer_matmul, lower_matmul});
  r.add({"ConvInteger", "", 2, 4, 1, 1, infer_conv, lower_conv});
  r.add({"ConvInteger", "ingot", 2, -1, 1, 1, infer_conv, lower_conv});
}

}  // namespace ingot
