// RNN, GRU, LSTM (kernels/recurrent.h): one product X W^T for all time steps and directions, then the recurrence.
#include "kernels/recurrent.h"

#include <algorithm>
#include <cctype>
#include <limits>

#include "base/checked.h"
#include "ops/layout.h"
#include "ops/product.h"
#include "ops/via_f32.h"

namespace ingot {
namespace {

enum Input { kX, kW, kR, kB, kLengths, kH0, kC0, kP };

struct Activation {
  const char* name;
  RecurrentActivation number;
  bool has_alpha, has_beta;
  double alpha, beta;  // unless given
};
constexpr Activation kActivations[] = {
    {"relu", kActRelu, false, false, 0, 0},
    {"tanh", kActTanh, false, false, 0, 0},
    {"sigmoid", kActSigmoid, false, false, 0, 0},
    {"affine", kActAffine, true, true, 1, 0},
    {"leakyrelu", kActLeakyRelu, true, false, 0.01, 0},
    {"thresholdedrelu", kActThresholdedRelu, true, false, 1, 0},
    {"scaledtanh", kActScaledTanh, true, true, 1, 1},
    {"hardsigmoid", kActHardSigmoid, true, true, 0.2, 0.5},
    {"elu", kActElu, true, false, 1, 0},
    {"softsign", kActSoftsign, false, false, 0, 0},
    {"softplus", kActSoftplus, false, false, 0, 0},
};

RecurrentKind kind_of(const Node& node) { return node.op == "RNN" ? kRnn : node.op == "GRU" ? kGru : kLstm; }
int64_t directions(const Node& node) { return node.get_string("direction", "forward") == "bidirectional" ? 2 : 1; }
constexpr int64_t kPackedSteps = 4;  // from so many time steps on, packing R in each run pays

bool batch_first(const Node& node) { return node.get_int("layout", 0) != 0; }

const Activation& find_activation(const Node& node, std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const Activation& a : kActivations)
    if (name == a.name) return a;
  invalid_model("{}: there is no activation '{}'", node.label(), name);
}

// The functions of each direction. Given alphas and betas are taken in order by those activations that have one.
void read_functions(const Node& node, RecurrentFunction (&out)[2][3]) {
  const auto each = kind_of(node) == kRnn ? 1u : kind_of(node) == kGru ? 2u : 3u;
  const std::vector<std::string> defaults = {each == 1 ? "tanh" : "sigmoid", "tanh", "tanh"};
  const auto names = node.get_strings("activations");
  const auto alphas = node.get_floats("activation_alpha"), betas = node.get_floats("activation_beta");
  const size_t dirs = static_cast<size_t>(directions(node));
  if (!names.empty() && names.size() != each * dirs)
    invalid_model("{}: has {} activations, expected {}", node.label(), names.size(), each * dirs);
  size_t alpha = 0, beta = 0;
  for (size_t d = 0; d < dirs; d++)
    for (size_t f = 0; f < each; f++) {
      const Activation& a = find_activation(node, names.empty() ? defaults[f] : names[d * each + f]);
      RecurrentFunction& to = out[d][f];
      to = {a.number, a.alpha, a.beta};
      if (a.has_alpha && alpha < alphas.size()) to.alpha = static_cast<double>(alphas[alpha++]);
      if (a.has_beta && beta < betas.size()) to.beta = static_cast<double>(betas[beta++]);
    }
}

bool are_usual(const Node& node, const RecurrentFunction (&functions)[2][3]) {
  for (int64_t d = 0; d < directions(node); d++) {
    const RecurrentFunction* f = functions[d];
    const bool gates = kind_of(node) == kRnn ? f[0].activation == kActTanh : f[0].activation == kActSigmoid;
    if (!gates || (kind_of(node) != kRnn && f[1].activation != kActTanh) ||
        (kind_of(node) == kLstm && f[2].activation != kActTanh))
      return false;
  }
  return true;
}

void need_shape(const InferContext& ctx, const Shape& s, const Shape& expected, const char* what) {
  bool fits = s.size() == expected.size();
  for (size_t d = 0; fits && d < s.size(); d++)
    fits = !s[d].is_const() || !expected[d].is_const() || s[d] == expected[d];
  ctx.require(fits, "{} is {}, expected {}", what, str(s), str(expected));
}
void need_shape(const InferContext& ctx, size_t i, const Shape& expected, const char* what) {
  if (ctx.has(i)) need_shape(ctx, ctx.shape(i), expected, what);
}

// The shape of W or R: of the operand, or of what was packed into it (planner/pack_weights.h).
Shape weight_shape(const InferContext& ctx, size_t i) {
  const char* attr = i == kW ? "packed_shape" : "packed_r_shape";
  return ctx.node.has(attr) ? to_shape(ctx.node.get_ints(attr)) : ctx.shape(i);
}

// A packed operand has panels that kernels know, and as many elements as `floats` says for their width.
template <class Floats>
void need_packed(const InferContext& ctx, size_t i, const char* attr, const Floats& floats) {
  const int64_t panel = ctx.node.get_int(attr, 0);
  if (panel == 0) return;
  ctx.require(kernel::is_panel(8, panel) || kernel::is_panel(16, panel), "panels of {} columns", panel);
  const Dim found = product(ctx.shape(i));
  ctx.require(!found.is_const() || found.is(floats(panel)), "operand {} has {} elements, packed ones {}", i,
              found.str(), floats(panel));
}

void check_packed_weights(const InferContext& ctx) {
  const int64_t kind = kind_of(ctx.node), dirs = directions(ctx.node);
  for (const char* attr : {"packed_shape", "packed_r_shape"})
    ctx.require(!ctx.node.has(attr) || ctx.node.get_ints(attr).size() == 3, "{} has not 3 dims", attr);
  if (ctx.node.has("packed")) {
    const auto w = ctx.node.get_ints("packed_shape", {0, 0, 0});
    need_packed(ctx, kW, "packed",
                [&](int64_t panel) { return checked_mul(dirs, kernel::packed_floats(w[2], w[1], panel)); });
  }
  if (ctx.node.has("packed_r")) {
    const int64_t hidden = ctx.node.get_ints("packed_r_shape", {0, 0, 0})[2];
    need_packed(ctx, kR, "packed_r",
                [&](int64_t panel) { return checked_mul(dirs, recurrent_packed_floats(kind, hidden, panel)); });
  }
}

void infer(InferContext& ctx) {
  const DType t = ctx.dtype(kX);
  for (size_t i = 0; i < ctx.output_count(); i++) ctx.set_dtype(i, t);
  ctx.require(is_half(t) || t == DType::F32 || t == DType::F64, "X is {}, expected f16, bf16, f32 or f64", name(t));
  for (size_t i = 0; i < ctx.input_count(); i++)
    if (ctx.has(i))
      ctx.require(ctx.dtype(i) == (i == kLengths ? DType::I32 : t), "operand {} is {}, expected {}", i,
                  name(ctx.dtype(i)), name(i == kLengths ? DType::I32 : t));
  const std::string direction = ctx.node.get_string("direction", "forward");
  ctx.require(direction == "forward" || direction == "reverse" || direction == "bidirectional",
              "direction is '{}', expected forward, reverse or bidirectional", direction);
  RecurrentFunction functions[2][3];
  read_functions(ctx.node, functions);
  check_packed_weights(ctx);
  const Shape &x = ctx.shape(kX), r = weight_shape(ctx, kR);
  ctx.require(x.size() == 3 && r.size() == 3, "X is {} and R is {}, expected rank 3", str(x), str(r));
  const bool first = batch_first(ctx.node);
  const Dim dirs = directions(ctx.node), gates = static_cast<int64_t>(kind_of(ctx.node)), hidden = r[2];
  const Dim &steps = x[first ? 1 : 0], &batch = x[first ? 0 : 1];
  ctx.require(!ctx.node.has("hidden_size") || !hidden.is_const() || hidden.is(ctx.node.get_int("hidden_size", 0)),
              "hidden_size is {}, R is {}", ctx.node.get_int("hidden_size", 0), str(r));
  const Shape state = first ? Shape{batch, dirs, hidden} : Shape{dirs, batch, hidden};
  need_shape(ctx, weight_shape(ctx, kW), {dirs, gates * hidden, x[2]}, "W");
  need_shape(ctx, r, {dirs, gates * hidden, hidden}, "R");
  need_shape(ctx, kB, {dirs, gates * hidden * 2}, "B");
  need_shape(ctx, kLengths, {batch}, "sequence_lens");
  need_shape(ctx, kH0, state, "initial_h");
  need_shape(ctx, kC0, state, "initial_c");
  need_shape(ctx, kP, {dirs, hidden * 3}, "P");
  ctx.set_shape(0, first ? Shape{batch, steps, dirs, hidden} : Shape{steps, dirs, batch, hidden});
  for (size_t i = 1; i < ctx.output_count(); i++) ctx.set_shape(i, state);
}

RecurrentParams params(const LowerContext& ctx) {
  const Node& node = ctx.node;
  const auto x = ctx.dims(kX);
  const bool first = batch_first(node);
  const int64_t dirs = directions(node);
  RecurrentParams p{};
  p.kind = kind_of(node);
  p.dtype = static_cast<int64_t>(ctx.in(kX).dtype);
  p.hidden = node.has("packed_r_shape") ? node.get_ints("packed_r_shape")[2] : ctx.dims(kR)[2];
  p.steps = x[first ? 1 : 0];
  p.batch = x[first ? 0 : 1];
  p.panel = node.get_int("packed_r", 0);
  if (p.panel == 0 && ctx.in(kX).dtype == DType::F32 && p.steps >= kPackedSteps)
    p.panel = recurrent_panel(ctx.target.lanes, p.kind, p.hidden);
  if (p.panel && !kernel::is_panel(ctx.target.lanes, p.panel))
    ctx.fail("has panels of {} columns, which the kernels of {} do not know", p.panel, ctx.target.name);
  p.reverse = node.get_string("direction", "forward") == "reverse";
  p.linear_before_reset = node.get_int("linear_before_reset", 0) != 0;
  p.input_forget = node.get_int("input_forget", 0) != 0;
  const float clip = node.get_float("clip", 0);
  p.clip = clip > 0 ? static_cast<double>(clip) : std::numeric_limits<double>::infinity();
  p.x_step = first ? 1 : p.batch;
  p.x_member = first ? p.steps : 1;
  p.y_step = dirs * p.hidden * (first ? 1 : p.batch);
  p.y_member = p.hidden * (first ? dirs * p.steps : 1);
  p.y_dir = p.hidden * (first ? 1 : p.batch);
  p.h_member = p.hidden * (first ? dirs : 1);
  p.h_dir = p.hidden * (first ? 1 : p.batch);
  read_functions(node, p.function);
  p.usual = clip <= 0 && are_usual(node, p.function);
  return p;
}

void lower(LowerContext& ctx) {
  const RecurrentParams p = params(ctx);
  const int64_t dirs = directions(ctx.node), width = p.kind * p.hidden;
  Product x;
  x.dtype = ctx.in(kX).dtype;
  x.batch = {dirs};
  x.m = p.steps * p.batch;
  x.n = width;
  x.k = ctx.dims(kX)[2];
  x.a = {ctx.input(kX), x.k, 1, {0}};
  x.b_panel = ctx.node.get_int("packed", 0);
  x.b = {ctx.input(kW), 1, x.k, {x.b_panel ? kernel::packed_floats(x.k, width, x.b_panel) : width * x.k}};
  const Operand xw = ctx.shared_temporary(byte_size(x.dtype, product_of({dirs, x.m, width})));
  emit_product(ctx, x, {}, {}, xw);
  Operand weights = ctx.input(kR);
  if (p.panel && !ctx.node.has("packed_r")) {
    const int64_t panels = dirs * recurrent_panels(p.kind, p.hidden, p.panel);
    weights = ctx.shared_temporary(byte_size(DType::F32, product_of({panels, p.panel, p.hidden})));
    Step& pack = ctx.step(ingot_recurrent_pack_kernel);
    pack.operands = {ctx.input(kR), weights};
    pack.params = params_of(p);
    pack.units = panels;
    pack.grain = grain_for(p.panel * p.hidden * 4);
  }
  Step& s = ctx.step(ingot_recurrent_kernel);
  s.operands = {xw,
                weights,
                ctx.input(kB),
                ctx.input(kLengths),
                ctx.input(kH0),
                ctx.input(kC0),
                ctx.input(kP),
                ctx.output(0),
                ctx.output(1),
                ctx.output(2)};
  s.params = params_of(p);
  s.units = p.batch == 0 ? 0 : dirs * recurrent_tiles(p, ctx.target.lanes);
  s.scratch = recurrent_scratch(p) * bits(x.dtype) / 8;
}

}  // namespace

void register_recurrent(OpRegistry& r) {
  r.add({"RNN", "", 3, 6, 0, 2, infer, with_halves<lower>});
  r.add({"GRU", "", 3, 6, 0, 2, infer, with_halves<lower>});
  r.add({"LSTM", "", 3, 8, 0, 3, infer, with_halves<lower>});
}

}  // namespace ingot
