#include "planner/pack_weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <thread>

#include "base/memory.h"
#include "base/threads.h"
#include "kernels/depthwise_i8.h"
#include "kernels/gemm.h"
#include "kernels/recurrent.h"
#include "ops/conv.h"
#include "ops/product.h"
#include "ops/quantized_product.h"
#include "ops/via_f32.h"
#include "planner/bf16_operands.h"
#include "planner/pack_i8.h"
#include "planner/pack_narrow.h"
#include "planner/shared_weights.h"

namespace ingot {
namespace {

using kernel::ConvParams;

// Where packed weights go. All live as long as each other, so small ones share huge pages, as large ones have anyway.
class PackedMemory {
 public:
  ConstantPtr make(DType dtype, int64_t elements, std::byte** data) {
    const auto size = static_cast<size_t>(byte_size(dtype, elements)), taken = (size + 127) / 64 * 64;
    given_ += taken;
    if (given_ < kHugePage || size >= kHugePage)
      return make_constant(dtype, {elements}, data);  // a small model has few
    if (!slab_ || used_ + taken > slab_->bytes.size()) {
      slab_ = make_constant(DType::U8, {int64_t{kSlab}}, &start_);
      used_ = 0;
    }
    auto c = std::make_shared<Constant>();
    c->dtype = dtype;
    c->dims = {elements};
    *data = start_ + used_;
    c->bytes = {*data, size};
    c->owner = slab_;
    used_ += taken;
    return c;
  }

 private:
  static constexpr size_t kSlab = 8 * kHugePage;
  ConstantPtr slab_;
  std::byte* start_ = nullptr;
  size_t used_ = 0, given_ = 0;
};

// One constant to be packed: what it becomes and how each of its independent parts is filled.
struct Packing {
  int64_t panel = 0;
  DType dtype = DType::F32;
  int64_t elements = 0, parts = 0;
  std::function<void(std::byte* to, int64_t part)> pack;
  std::map<std::string, Attribute> attrs = {};  // of narrow panels, and of pairs of bf16
  size_t operand = 1;
  std::string attr = "packed";  // gets the width of the panels; attr + "_shape" the dims of the constant
};

// The elements of a constant as f32: where they are, or widened.
std::shared_ptr<const float> wide(const ConstantPtr& c) {
  if (c->dtype == DType::F32) return {c, c->as<float>().data()};
  const auto floats = std::make_shared<std::vector<float>>(as_floats(c->dtype, c->bytes.data(), c->elements()));
  return {floats, floats->data()};
}
// Scales or zero points, one of which stands for `count`.
std::shared_ptr<const std::vector<float>> parameters(const Graph& g, TensorId t, size_t count) {
  if (t == kNoTensor) return nullptr;
  const Constant& c = *g.info(t).constant;
  auto out = std::make_shared<std::vector<float>>(as_floats(c.dtype, c.bytes.data(), c.elements()));
  if (out->size() == 1) out->resize(count, out->front());
  return out;
}

Packing pack_floats(const Target& target, const ConstantPtr& c, int64_t k, int64_t n, int64_t row, int64_t col) {
  const int64_t panel = kernel::best_panel(target.lanes, n);
  return {panel, DType::F32, kernel::packed_floats(k, n, panel), kernel::div_up(n, panel),
          [=](std::byte* to, int64_t part) {
            kernel::pack_b(reinterpret_cast<float*>(to), c->as<float>().data(), k, n, row, col, panel, part, part + 1);
          }};
}

Packing pack_narrow(const Target& target, const NarrowMatrix& m, ConstantPtr keep) {
  const NarrowPacking packing = narrow_packing(m, target.lanes);
  const kernel::NarrowPanels& layout = packing.layout;
  return {layout.panel,
          DType::U8,
          kernel::narrow_bytes(layout, m.n),
          kernel::div_up(m.n, layout.panel),
          [=](std::byte* to, int64_t part) { pack_narrow_panel(m, packing, to, part), (void)keep; },
          {{"packed_type", layout.type},
           {"packed_block", layout.block},
           {"packed_zeros", layout.zeros},
           {"packed_half", layout.half},
           {"packed_zero", packing.zero}}};
}

// bf16 that meets bf16 (kernels/gemm_bf16.h).
Packing pack_pairs(const Target& target, kernel::Bf16Form form, const ConstantPtr& c, int64_t k, int64_t n, int64_t row,
                   int64_t col) {
  const int64_t panel = kernel::bf16_panel(form, target.lanes, n),
                elements = panel * kernel::bf16_padded_depth(form, k);
  return {panel,
          DType::BF16,
          kernel::bf16_packed_elements(form, panel, k, n),
          kernel::div_up(n, panel),
          [=](std::byte* to, int64_t part) {
            const auto* from = reinterpret_cast<const uint16_t*>(c->bytes.data()) + part * panel * col;
            kernel::bf16_pack_panel(reinterpret_cast<uint16_t*>(to) + part * elements, from, form, panel, k,
                                    n - part * panel, row, col);
          },
          {{"packed_form", std::string(name(form))}}};
}

Packing pack_matrix(const Target& target, const ConstantPtr& c, int64_t k, int64_t n, int64_t row, int64_t col) {
  if (!is_half(c->dtype)) return pack_floats(target, c, k, n, row, col);
  return pack_narrow(target, {.k = k, .n = n, .row = row, .col = col, .dtype = c->dtype, .values = c->bytes.data()}, c);
}

Packing pack_filter(const Target& target, const Node& node, const ConstantPtr& c) {
  const std::vector<int64_t>& w = c->dims;
  const int64_t groups = node.get_int("group", 1);
  const Window window = window_of(node, w.size() - 2, {w.begin() + 2, w.end()});
  const ConvForm form = conv_form(window, groups, w);
  if (form == ConvForm::Matrix) return pack_matrix(target, c, w[1], w[0], 1, w[1]);
  const auto from = wide(c);
  if (const int64_t side = winograd_side(node)) {
    const kernel::WinogradParams p = winograd_weights_params(side, w, target);
    return {p.panel, DType::F32, kernel::winograd_packed_floats(p), kernel::winograd_panels(p),
            [=](std::byte* to, int64_t part) {
              kernel::winograd_pack_weights(reinterpret_cast<float*>(to), from.get(), p, part, part + 1);
            }};
  }
  const ConvParams p = conv_weights_params(window, groups, w, target);
  if (form == ConvForm::Depthwise)
    return {p.panel, DType::F32, kernel::conv_depthwise_floats(p), 1,
            [=](std::byte* to, int64_t) { kernel::conv_pack_depthwise(reinterpret_cast<float*>(to), from.get(), p); }};
  return {p.panel, DType::F32, kernel::conv_packed_floats(p), kernel::conv_panels(p), [=](std::byte* to, int64_t part) {
            kernel::conv_pack_weights(reinterpret_cast<float*>(to), from.get(), p, part, part + 1);
          }};
}

// B of an ingot.MatMul that has scales (ops/matmul.cpp).
std::optional<Packing> pack_quantized(const Graph& g, const Node& node, const ConstantPtr& c) {
  if (node.inputs.size() < 3 || !g.info(node.inputs[2]).constant) return std::nullopt;
  const TensorId zero = node.has_input(3) ? node.inputs[3] : kNoTensor;
  if (zero != kNoTensor && !g.info(zero).constant) return std::nullopt;
  const auto& dims = c->dims;
  const bool transposed = node.get_int("transB", 0) != 0, per_tensor = g.info(node.inputs[2]).constant->elements() == 1;
  const int64_t given = node.get_int("b_axis", 1), axis = given < 0 ? given + 2 : given;
  const bool along_k = (axis == 0) != transposed;
  NarrowMatrix m{.k = dims[transposed ? 1 : 0], .n = dims[transposed ? 0 : 1], .dtype = c->dtype};
  m.row = transposed ? 1 : m.n;
  m.col = transposed ? m.k : 1;
  m.values = c->bytes.data();
  m.scale = parameters(g, node.inputs[2], 1);
  m.zero = parameters(g, zero, m.scale->size());
  m.block = node.get_int("b_block", 0);
  if (m.block == 0) {
    m.block = along_k && !per_tensor ? 1 : 0;
    m.s_group = m.block;
    m.s_column = along_k || per_tensor ? 0 : 1;
  } else if (along_k) {
    m.s_group = transposed ? 1 : m.n;
    m.s_column = transposed ? kernel::div_up(m.k, m.block) : 1;
  } else {
    return std::nullopt;
  }
  return pack_narrow(target_of(g), m, c);
}

std::optional<Packing> packing_of(const Graph& g, const Node& node) {
  const bool ours = node.domain.empty() || node.domain == "ingot";
  if (!ours || node.has("packed") || !node.has_input(1)) return std::nullopt;
  const ConstantPtr& c = g.info(node.inputs[1]).constant;
  if (!c || c->elements() == 0) return std::nullopt;
  const auto& dims = c->dims;
  const Target& target = target_of(g);
  const DType a_type = g.info(node.inputs[0]).dtype;
  const bool product = (node.op == "MatMul" || node.op == "Gemm") && dims.size() == 2;
  if (product && node.get_int("quantized", 0)) return pack_quantized(g, node, c);
  if (c->dtype != DType::F32 && !is_half(c->dtype)) return std::nullopt;
  if (product) {
    const bool transposed = node.get_int("transB", 0) != 0, pairs = c->dtype == DType::BF16 && a_type == DType::BF16;
    const int64_t k = dims[transposed ? 1 : 0], n = dims[transposed ? 0 : 1];
    const int64_t row = transposed ? 1 : n, col = transposed ? k : 1;
    const auto form = bf16_form(target);
    return pairs && form ? pack_pairs(target, *form, c, k, n, row, col) : pack_matrix(target, c, k, n, row, col);
  }
  if (node.op == "Conv" && dims.size() >= 3) return pack_filter(target, node, c);
  if (node.is("ConvTranspose", "ingot") && node.get_int("group", 1) == 1)
    return pack_matrix(target, c, dims[0], c->elements() / dims[0], c->elements() / dims[0], 1);
  return std::nullopt;
}

// W and R of an RNN, GRU or LSTM (kernels/recurrent.h), one direction after the other.
std::vector<Packing> recurrent_packings(const Graph& g, const Node& node) {
  if (!node.is("RNN") && !node.is("GRU") && !node.is("LSTM")) return {};
  const int64_t kind = node.op == "RNN" ? kRnn : node.op == "GRU" ? kGru : kLstm, lanes = target_of(g).lanes;
  std::vector<Packing> out;
  auto matrix = [&](size_t operand, const char* attr) -> ConstantPtr {
    const ConstantPtr& c = g.info(node.inputs[operand]).constant;
    const bool fits = !node.has(attr) && c && c->dtype == DType::F32 && c->dims.size() == 3 && c->elements() > 0;
    return fits ? c : nullptr;
  };
  if (const ConstantPtr w = matrix(1, "packed")) {
    const int64_t n = w->dims[1], k = w->dims[2], panel = kernel::best_panel(lanes, n);
    const int64_t floats = kernel::packed_floats(k, n, panel), panels = kernel::div_up(n, panel);
    out.push_back({panel, DType::F32, w->dims[0] * floats, w->dims[0] * panels, [=](std::byte* to, int64_t part) {
                     const int64_t dir = part / panels, i = part % panels;
                     kernel::pack_b(reinterpret_cast<float*>(to) + dir * floats, w->as<float>().data() + dir * n * k, k,
                                    n, 1, k, panel, i, i + 1);
                   }});
  }
  if (const ConstantPtr r = matrix(2, "packed_r"); r && r->dims[1] == kind * r->dims[2]) {
    const int64_t hidden = r->dims[2], panel = recurrent_panel(lanes, kind, hidden);
    const int64_t floats = recurrent_packed_floats(kind, hidden, panel), panels = recurrent_panels(kind, hidden, panel);
    out.push_back({panel, DType::F32, r->dims[0] * floats, r->dims[0] * panels, [=](std::byte* to, int64_t part) {
                     const int64_t dir = part / panels;
                     recurrent_pack_panel(reinterpret_cast<float*>(to) + dir * floats,
                                          r->as<float>().data() + dir * kind * hidden * hidden, kind, hidden, panel,
                                          part % panels);
                   }});
    out.back().operand = 2;
    out.back().attr = "packed_r";
  }
  return out;
}

std::vector<Packing> packings_of(const Graph& g, const Node& node) {
  if (auto one = packing_of(g, node)) return {*one};
  return recurrent_packings(g, node);
}

// A weight to be packed: the operand of a node, and what tells its packed copy from all others.
struct Wish {
  Node* node;
  Packing packing;
  ConstantPtr original;
  std::string key;
};

// How a weight is packed, as far as that is not said by the weight itself. `others`: constants that are packed with it.
std::string layout_key(const Node& node, const Target& target, const std::string& how,
                       const std::vector<ConstantPtr>& others = {}) {
  std::string key = fmt::format("{} {} {}", target.name, node.op, how);
  for (const char* attr : {"group", "transB", "b_axis", "b_block", "winograd"})
    key += fmt::format(" {}", node.get_int(attr, -1));
  for (const char* attr : {"strides", "dilations", "pads"})
    key += fmt::format(" {}", fmt::join(node.get_ints(attr), ","));
  for (const ConstantPtr& c : others) key += c ? " with " + content_key(*c) : " with none";
  return key;
}

std::string layout_key(const Graph& g, const Node& node, const Packing& p) {
  std::vector<ConstantPtr> scales;
  if (node.get_int("quantized", 0))
    for (size_t i : {2, 3}) scales.push_back(node.has_input(i) ? g.info(node.inputs[i]).constant : nullptr);
  std::string how = fmt::format("{} {} {} {}", p.attr, p.panel, p.elements, name(p.dtype));
  if (const auto form = p.attrs.find("packed_form"); form != p.attrs.end()) how += std::get<std::string>(form->second);
  return layout_key(node, target_of(g), how, scales);
}

struct Job {
  Packing packing;
  std::byte* to;
  TensorId packed;
  std::string key;
};

// A thread is worth starting for `grain` parts.
size_t threads_for(size_t parts, size_t grain) {
  return std::min<size_t>(std::max(1u, std::thread::hardware_concurrency()), parts / grain + 1);
}

void run(const std::vector<Job>& jobs) {
  std::vector<std::pair<const Job*, int64_t>> parts;
  for (const Job& j : jobs)
    for (int64_t p = 0; p < j.packing.parts; p++) parts.emplace_back(&j, p);
  share_out(parts.size(), threads_for(parts.size(), 64),
            [&](size_t i) { parts[i].first->packing.pack(parts[i].first->to, parts[i].second); });
}

// Puts the contents of the weights before the keys.
void add_contents(std::vector<Wish>& wishes) {
  std::map<const Constant*, std::string> contents;
  for (const Wish& w : wishes) contents[w.original.get()];
  std::vector<std::pair<const Constant*, std::string*>> list;
  for (auto& [constant, key] : contents) list.emplace_back(constant, &key);
  share_out(list.size(), threads_for(list.size(), 4), [&](size_t i) { *list[i].second = content_key(*list[i].first); });
  for (Wish& w : wishes) w.key = contents[w.original.get()] + " " + w.key;
}

// --- 8-bit integers (kernels/gemm_i8.h) ---

bool one_or_none(const Graph& g, const Node& node, size_t i) {
  return !node.has_input(i) || (g.info(node.inputs[i]).shape && product(*g.info(node.inputs[i]).shape).is(1));
}

// The matrices a node multiplies by: one, or one for each group of a convolution. None: it is not packed.
std::vector<I8Matrix> integer_matrices(const Graph& g, const Node& node) {
  const bool conv = node.op == "ConvInteger", matmul = node.op == "MatMulInteger";
  if (!(conv || matmul) || !(node.domain.empty() || node.domain == "ingot") || node.has("packed_form")) return {};
  const ConstantPtr& c = g.info(node.inputs[1]).constant;
  if (!c || c->elements() == 0 || !one_or_none(g, node, 2)) return {};
  const auto& dims = c->dims;
  const auto* bytes = reinterpret_cast<const uint8_t*>(c->bytes.data());
  const bool is_signed = c->dtype == DType::I8;
  if (matmul) {
    if (dims.size() != 2) return {};
    const bool transposed = node.get_int("transB", 0) != 0;
    const int64_t n = dims[transposed ? 0 : 1], k = dims[transposed ? 1 : 0];
    const int64_t row = transposed ? 1 : n, col = transposed ? k : 1;
    if (!one_or_none(g, node, 3) && !g.info(node.inputs[3]).shape->back().is(n)) return {};
    return {i8_matrix(bytes, k, n, row, col, is_signed)};
  }
  const int64_t groups = node.get_int("group", 1);
  if (dims.size() < 3 || !is_grouped_product(groups, dims)) return {};
  const FilterRuns f = filter_runs(window_of(node, dims.size() - 2, {dims.begin() + 2, dims.end()}), groups, dims);
  const int64_t channels = dims[1], columns = dims[0] / groups, runs = f.runs[0] * f.runs[1] * f.runs[2];
  const int64_t taps = c->elements() / (dims[0] * channels);
  I8Matrix m{columns, runs, f.run_bytes, is_signed, bytes, {}, channels * taps};
  for (int64_t k = 0; k < channels * taps; k++) m.k_offset.push_back(k % channels * taps + k / channels);
  std::vector<I8Matrix> out;
  for (int64_t group = 0; group < groups; group++, m.data += columns * m.column_stride) out.push_back(m);
  return out;
}

// Is A known to have so few rows that they are best taken one by one?
bool has_few_rows(const Graph& g, const Node& node) {
  const auto& shape = g.info(node.inputs[0]).shape;
  if (node.op != "MatMulInteger" || !shape || shape->empty()) return false;
  const Dim rows = product(Shape(shape->begin(), shape->end() - 1));
  return rows.is_const() && rows.value() <= kernel::i8_few_rows(kernel::kI8Rows);
}

// A depthwise filter as kernels/depthwise_i8.h has it; nothing where its zero points are not known.
std::optional<std::vector<std::byte>> packed_depthwise(const Graph& g, const Node& node) {
  if (!node.is("ConvInteger") && !node.is("ConvInteger", "ingot")) return std::nullopt;
  const ConstantPtr& c = g.info(node.inputs[1]).constant;
  if (node.has("packed_form") || !c || c->dims.size() < 3 || c->elements() == 0 || !one_or_none(g, node, 2))
    return std::nullopt;
  if (!is_depthwise(node.get_int("group", 1), c->dims)) return std::nullopt;
  const ConstantPtr zero = node.has_input(3) ? g.info(node.inputs[3]).constant : nullptr;
  if (node.has_input(3) && !zero) return std::nullopt;
  const int64_t channels = c->dims[0], taps = c->elements() / channels, padded = kernel::depthwise_padded(channels);
  std::vector<std::byte> out(static_cast<size_t>(kernel::depthwise_bytes(taps, channels)));
  auto* sums = reinterpret_cast<int32_t*>(out.data());
  auto* weights = reinterpret_cast<int16_t*>(sums + padded);
  const auto number = [&](const Constant& from, int64_t i) {
    const auto byte = static_cast<uint8_t>(from.bytes[static_cast<size_t>(i)]);
    return c->dtype == DType::I8 ? static_cast<int>(static_cast<int8_t>(byte)) : static_cast<int>(byte);
  };
  for (int64_t ch = 0; ch < channels; ch++)
    for (int64_t t = 0; t < taps; t++) {
      const int w = number(*c, ch * taps + t) - (zero ? number(*zero, zero->elements() == 1 ? 0 : ch) : 0);
      weights[(t / 2 * padded + ch) * 2 + t % 2] = static_cast<int16_t>(w);
      sums[ch] += w;
    }
  return out;
}

void set_packed(Graph& g, Node& node, TensorId packed, PackedForm form) {
  const Constant& original = *g.info(node.inputs[1]).constant;
  node.attrs["packed_form"] = std::string(name(form));
  node.attrs["packed_signed"] = int64_t{original.dtype == DType::I8};
  node.attrs["packed_shape"] = original.dims;
  node.inputs[1] = packed;
}

TensorId add_packed(Graph& g, TensorId original, const ConstantPtr& packed) {
  return g.add_constant(g.fresh_name(g.tensor(original).name + ".packed"), packed);
}

SharedWeight share_bytes(const std::string& key, const std::vector<std::byte>& bytes, int64_t form,
                         PackedMemory& memory) {
  std::byte* data = nullptr;
  const ConstantPtr packed = memory.make(DType::U8, std::ssize(bytes), &data);
  std::copy(bytes.begin(), bytes.end(), data);
  return share_weight(key, {packed, form});
}

// One constant for all groups, each taking the same number of bytes, and in one form.
PackedI8 pack_together(const std::vector<I8Matrix>& matrices, std::optional<kernel::I8Form> form, int64_t lanes) {
  std::vector<PackedI8> parts;
  for (const I8Matrix& m : matrices) parts.push_back(form ? pack_i8(m, *form, lanes) : pack_i8(m, lanes));
  const bool mixed =
      std::any_of(parts.begin(), parts.end(), [](const PackedI8& p) { return p.form == kernel::kI8Pairs; });
  size_t most = 0;
  for (size_t i = 0; i < parts.size(); i++) {
    if (mixed && parts[i].form != kernel::kI8Pairs) parts[i] = pack_i8(matrices[i], kernel::kI8Pairs, lanes);
    most = std::max(most, parts[i].bytes.size());
  }
  PackedI8 out = std::move(parts[0]);
  out.bytes.resize(most);
  for (size_t i = 1; i < parts.size(); i++) {
    parts[i].bytes.resize(most);
    out.bytes.insert(out.bytes.end(), parts[i].bytes.begin(), parts[i].bytes.end());
  }
  return out;
}

bool pack_integers(Graph& g, const Target& target, PackedMemory& memory) {
  struct IntegerJob {
    TensorId original = kNoTensor;
    std::vector<I8Matrix> matrices;
    std::vector<size_t> nodes;
    PackedI8 packed;
    std::optional<kernel::I8Form> form;  // the best by its weights otherwise
    std::optional<SharedWeight> shared;
  };
  std::map<std::string, IntegerJob> jobs;
  for (size_t i = 0; i < g.nodes.size(); i++) {
    const Node& node = g.nodes[i];
    auto matrices = integer_matrices(g, node);
    if (matrices.empty()) continue;
    std::optional<kernel::I8Form> form;
    if (const auto panels = i8_panel_form(target))
      form = panels;
    else if (has_few_rows(g, node))
      form = kernel::kI8Rows;
    const std::string how = fmt::format("{} {} {}", matrices.size(), matrices[0].run_bytes, form ? *form : -1);
    IntegerJob& job = jobs[content_key(*g.info(node.inputs[1]).constant) + " " + layout_key(node, target, how)];
    job.form = form;
    job.original = node.inputs[1];
    if (job.nodes.empty()) job.matrices = std::move(matrices);
    job.nodes.push_back(i);
  }
  std::vector<IntegerJob*> list;
  for (auto& [key, job] : jobs)
    if (!(job.shared = find_shared_weight(key))) list.push_back(&job);
  share_out(list.size(), threads_for(list.size(), 2),
            [&](size_t i) { list[i]->packed = pack_together(list[i]->matrices, list[i]->form, target.lanes); });
  for (auto& [key, job] : jobs) {
    if (!job.shared) job.shared = share_bytes(key, job.packed.bytes, job.packed.form, memory);
    const TensorId t = add_packed(g, job.original, job.shared->packed);
    for (size_t i : job.nodes) set_packed(g, g.nodes[i], t, static_cast<PackedForm>(job.shared->form));
  }
  bool depthwise = false;
  for (Node& node : g.nodes)
    if (auto packed = packed_depthwise(g, node)) {
      const ConstantPtr zero = node.has_input(3) ? g.info(node.inputs[3]).constant : nullptr;
      const std::string key =
          content_key(*g.info(node.inputs[1]).constant) + " " + layout_key(node, target, "depthwise", {zero});
      auto shared = find_shared_weight(key);
      if (!shared) shared = share_bytes(key, *packed, 0, memory);
      set_packed(g, node, add_packed(g, node.inputs[1], shared->packed), PackedForm::Depthwise);
      depthwise = true;
    }
  return depthwise || !jobs.empty();
}

}  // namespace

void pack_weights(Graph& g, const Target& target) {
  g.target = &target;
  for (Node& node : g.nodes)
    for (auto& [attr, value] : node.attrs)
      if (auto* body = std::get_if<GraphPtr>(&value)) {
        *body = std::make_shared<Graph>(**body);  // shared with the graph this one was copied from
        pack_weights(**body, target);
      }
  const bool changed = read_bf16_operands(g, target);
  std::vector<Wish> wishes;
  for (Node& node : g.nodes)
    for (Packing& packing : packings_of(g, node)) {
      std::string key = layout_key(g, node, packing);
      const ConstantPtr original = g.info(node.inputs[packing.operand]).constant;
      wishes.push_back({&node, std::move(packing), original, std::move(key)});
    }
  add_contents(wishes);
  PackedMemory memory;
  std::map<std::string, TensorId> done;
  std::vector<Job> jobs;
  for (const auto& [node, packing, original, key] : wishes) {
    TensorId& weight = node->inputs[packing.operand];
    auto [it, fresh] = done.try_emplace(key, kNoTensor);
    if (fresh) {
      std::byte* data = nullptr;
      const auto shared = find_shared_weight(key);
      it->second = add_packed(g, weight, shared ? shared->packed : memory.make(packing.dtype, packing.elements, &data));
      if (!shared) jobs.push_back({packing, data, it->second, key});
    }
    weight = it->second;
    for (const auto& [attr, value] : packing.attrs) node->attrs[attr] = value;
    if (node->get_int("quantized", 0))  // scales lie in the panels
      for (size_t i = 2; i < std::min<size_t>(4, node->inputs.size()); i++) node->inputs[i] = kNoTensor;
    node->attrs[packing.attr] = packing.panel;
    node->attrs[packing.attr + "_shape"] = original->dims;
  }
  run(jobs);
  for (const Job& j : jobs) {
    ConstantPtr& packed = g.tensor(j.packed).info.constant;
    packed = share_weight(j.key, {packed}).packed;
  }
  const bool integers = pack_integers(g, target, memory);
  if (changed || !wishes.empty() || integers) remove_dead(g);
}

}  // namespace ingot

// As a model.so of several targets finds it (compiler/backend.cpp).
extern "C" void ingot_pack_weights(ingot::Graph& g, const ingot::Target& target) { ingot::pack_weights(g, target); }
