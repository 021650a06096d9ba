// BatchNormalization(x) = (x - mean) / sqrt(var + epsilon) * scale + bias = x * s + t, per channel (axis 1), with
//   s = scale / sqrt(var + epsilon),   t = bias - mean * s.
// Behind a node that is linear in its weights:
//   BatchNormalization(Conv(x, W, b)) -> Conv(x, W * s, b * s + t)
#include <cmath>

#include "passes/constants.h"
#include "passes/editor.h"
#include "passes/passes.h"

namespace ingot {
namespace {

using Handle = Editor::Handle;
using Floats = std::vector<float>;

struct Affine {
  Floats s, t;
};

std::optional<Affine> affine(const Editor& e, const Node& n) {
  if (n.get_int("training_mode", 0) != 0 || n.inputs.size() < 5) return std::nullopt;
  for (size_t i = 1; i < 5; i++)
    if (!e.is_constant(n.inputs[i]) || !is_f32(e.info(n.inputs[i]))) return std::nullopt;
  auto data = [&](size_t i) { return e.info(n.inputs[i]).constant->as<float>(); };
  auto scale = data(1), bias = data(2), mean = data(3), var = data(4);
  if (bias.size() != scale.size() || mean.size() != scale.size() || var.size() != scale.size()) return std::nullopt;
  const double epsilon = n.get_float("epsilon", 1e-5f);
  Affine a;
  for (size_t c = 0; c < scale.size(); c++) {
    double s = scale[c] / std::sqrt(var[c] + epsilon);
    a.s.push_back(static_cast<float>(s));
    a.t.push_back(static_cast<float>(bias[c] - mean[c] * s));
  }
  return a;
}

// How output channels lie in a weight: [groups, repeats, channels of a group, inner].
struct ChannelLayout {
  int64_t groups = 1, repeats = 1, channels = 0, inner = 1;
};

// W with each element multiplied by s of its output channel.
ConstantPtr scaled(const Constant& w, const Floats& s, const ChannelLayout& l) {
  std::byte* room = nullptr;
  ConstantPtr out = make_constant(DType::F32, w.dims, &room);
  auto* to = reinterpret_cast<float*>(room);
  const float* from = w.as<float>().data();
  for (int64_t g = 0; g < l.groups; g++)
    for (int64_t r = 0; r < l.repeats; r++)
      for (int64_t c = 0; c < l.channels; c++) {
        const float by = s[static_cast<size_t>(g * l.channels + c)];
        for (int64_t i = 0; i < l.inner; i++) *to++ = *from++ * by;
      }
  return out;
}

// The weight scaled per output channel of the linear node; nullptr when its form does not allow it.
ConstantPtr scaled_weight(const Node& n, const Constant& w, const Floats& s) {
  const auto channels = static_cast<int64_t>(s.size());
  auto size_from = [&](size_t axis) {
    int64_t p = 1;
    for (size_t i = axis; i < w.dims.size(); i++) p *= w.dims[i];
    return p;
  };
  if (n.is("Conv") && w.dims[0] == channels) return scaled(w, s, {.channels = channels, .inner = size_from(1)});
  if (n.is("ConvTranspose")) {  // W is [C_in, C_out / group, ...], the groups side by side along C_in
    const int64_t group = n.get_int("group", 1), per_group = w.dims[1];
    if (per_group * group != channels || w.dims[0] % group != 0) return nullptr;
    return scaled(w, s, {group, w.dims[0] / group, per_group, size_from(2)});
  }
  const bool rows = n.is("Gemm") && n.get_int("transB", 0) != 0;  // W is [N, K]
  if ((n.is("Gemm") || n.is("MatMul")) && w.dims.size() == 2 && w.dims[rows ? 0 : 1] == channels)
    return rows ? scaled(w, s, {.channels = channels, .inner = w.dims[1]})
                : scaled(w, s, {.repeats = w.dims[0], .channels = channels});
  return nullptr;
}

bool fold_into_weights(Editor& e, Handle h, const Affine& a) {
  const Node& bn = e.node(h);
  Handle lh = e.producer(bn.inputs[0]);
  if (lh == Editor::kNone || !e.single_use(bn.inputs[0])) return false;
  const Node& n = e.node(lh);
  if (!n.domain.empty() || n.inputs.size() < 2 || !e.is_constant(n.inputs[1]) || !is_f32(e.info(n.inputs[1])))
    return false;
  const auto& out = e.info(n.outputs[0]).shape;
  if ((n.is("Gemm") || n.is("MatMul")) && (!out || out->size() != 2)) return false;
  ConstantPtr w = scaled_weight(n, *e.info(n.inputs[1]).constant, a.s);
  if (!w) return false;
  Floats b = a.t;
  if (n.has_input(2)) {
    const auto& info = e.info(n.inputs[2]);
    const bool vector = info.constant && is_f32(info) && info.constant->elements() == static_cast<int64_t>(b.size());
    if (!vector) return false;
    const float beta = n.is("Gemm") ? n.get_float("beta", 1.f) : 1.f;
    for (size_t c = 0; c < b.size(); c++) b[c] += beta * info.constant->as<float>()[c] * a.s[c];
  }
  TensorId weight = e.add_constant(e.graph.tensor(n.inputs[1]).name + "/scaled", w);
  TensorId bias = e.add_constant(bn.name + "/bias", make_constant(DType::F32, {static_cast<int64_t>(b.size())}, b));
  Node folded = n;
  folded.origins.insert(folded.origins.end(), bn.origins.begin(), bn.origins.end());
  folded.inputs = {n.inputs[0], weight, bias};
  if (folded.op == "Gemm") folded.attrs["beta"] = 1.f;
  if (folded.op == "MatMul") folded.op = "Gemm";
  e.erase(lh);
  e.replace(h, std::move(folded));
  return true;
}

// BatchNormalization(x) -> x * s + t, with s and t of shape [C, 1, ...]
bool to_mul_add(Editor& e, Handle h, const Affine& a) {
  const Node n = e.node(h);
  const std::optional<Shape> shape = e.info(n.inputs[0]).shape;
  if (!shape || shape->size() < 2 || !is_f32(e.info(n.inputs[0]))) return false;
  std::vector<int64_t> dims(shape->size() - 1, 1);
  dims[0] = static_cast<int64_t>(a.s.size());
  TensorId s = e.add_constant(n.name + "/scale", make_constant(DType::F32, dims, a.s));
  TensorId t = e.add_constant(n.name + "/shift", make_constant(DType::F32, dims, a.t));
  TensorId scaled = e.emit(n, "Mul", {n.inputs[0], s}, {}, DType::F32, shape);
  e.replace(h, Node{.op = "Add", .inputs = {scaled, t}});
  return true;
}

}  // namespace

void fold_batch_norm(Graph& graph) {
  Editor e(graph);
  for (Handle h = 0, end = e.size(); h < end; h++) {
    if (!e.alive(h) || !e.node(h).is("BatchNormalization") || e.node(h).outputs.size() != 1) continue;
    if (auto a = affine(e, e.node(h))) fold_into_weights(e, h, *a) || to_mul_add(e, h, *a);
  }
  e.finish();
}

}  // namespace ingot
