#include "planner/pack_weights.h"

#include <atomic>
#include <functional>
#include <map>
#include <thread>

#include "kernels/gemm.h"
#include "ops/conv.h"

namespace ingot {
namespace {

using kernel::ConvParams;

// One constant to be packed: how large it becomes and how each of its independent parts is filled.
struct Packing {
  int64_t panel = 0;
  int64_t floats = 0, parts = 0;
  std::function<void(float* to, const float* from, int64_t part)> pack;
};

Packing pack_matrix(int64_t k, int64_t n, int64_t row_stride, int64_t col_stride) {
  const int64_t panel = kernel::gemm_panel(n);
  return {panel, kernel::packed_floats(k, n, panel), kernel::div_up(n, panel),
          [=](float* to, const float* from, int64_t part) {
            kernel::pack_b(to, from, k, n, row_stride, col_stride, panel, part, part + 1);
          }};
}

Packing pack_filter(const Node& node, const std::vector<int64_t>& w) {
  const int64_t groups = node.get_int("group", 1);
  const Window window = window_of(node, w.size() - 2, {w.begin() + 2, w.end()});
  const ConvForm form = conv_form(window, groups, w);
  if (form == ConvForm::Matrix) return pack_matrix(w[1], w[0], 1, w[1]);
  const ConvParams p = conv_weights_params(window, groups, w);
  if (form == ConvForm::Depthwise)
    return {1, kernel::conv_taps(p) * p.out_channels, 1,
            [=](float* to, const float* from, int64_t) { kernel::conv_pack_depthwise(to, from, p); }};
  return {p.panel, kernel::conv_packed_floats(p), kernel::conv_panels(p),
          [=](float* to, const float* from, int64_t part) { kernel::conv_pack_weights(to, from, p, part, part + 1); }};
}

std::optional<Packing> packing_of(const Graph& g, const Node& node) {
  const bool ours = node.domain.empty() || node.domain == "ingot";
  if (!ours || node.has("packed") || !node.has_input(1)) return std::nullopt;
  const ConstantPtr& c = g.info(node.inputs[1]).constant;
  if (!c || c->dtype != DType::F32 || c->elements() == 0) return std::nullopt;
  const auto& dims = c->dims;
  if ((node.op == "MatMul" || node.op == "Gemm") && dims.size() == 2) {
    if (node.get_int("transB", 0)) return pack_matrix(dims[1], dims[0], 1, dims[1]);
    return pack_matrix(dims[0], dims[1], dims[1], 1);
  }
  if (node.op == "Conv" && dims.size() >= 3) return pack_filter(node, dims);
  return std::nullopt;
}

// What makes two packings of one constant the same.
using Key = std::pair<TensorId, std::string>;
Key key_of(const Node& node, const Packing& p) {
  const bool conv = node.op == "Conv";
  const int64_t variant = conv ? node.get_int("group", 1) : node.get_int("transB", 0);
  return {node.inputs[1], fmt::format("{} {} {} {}", conv, variant, p.panel, p.floats)};
}

struct Job {
  Packing packing;
  const float* from;
  float* to;
};

// All parts of all jobs, shared out to the cores.
void run(const std::vector<Job>& jobs) {
  std::vector<std::pair<const Job*, int64_t>> parts;
  for (const Job& j : jobs)
    for (int64_t p = 0; p < j.packing.parts; p++) parts.emplace_back(&j, p);
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < parts.size();)
      parts[i].first->packing.pack(parts[i].first->to, parts[i].first->from, parts[i].second);
  };
  std::vector<std::thread> threads;
  const size_t extra = std::min<size_t>(std::max(1u, std::thread::hardware_concurrency()) - 1, parts.size() / 64);
  for (size_t i = 0; i < extra; i++) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
}

}  // namespace

void pack_weights(Graph& g) {
  for (Node& node : g.nodes)
    for (auto& [attr, value] : node.attrs)
      if (auto* body = std::get_if<GraphPtr>(&value)) {
        *body = std::make_shared<Graph>(**body);  // shared with the graph this one was copied from
        pack_weights(**body);
      }
  std::map<Key, TensorId> done;
  std::vector<Job> jobs;
  for (Node& node : g.nodes) {
    auto packing = packing_of(g, node);
    if (!packing) continue;
    const TensorId weight = node.inputs[1];
    const ConstantPtr original = g.info(weight).constant;
    auto [it, fresh] = done.try_emplace(key_of(node, *packing), kNoTensor);
    if (fresh) {
      std::byte* data = nullptr;
      ConstantPtr packed = make_constant(DType::F32, {packing->floats}, &data);
      it->second = g.add_constant(g.fresh_name(g.tensor(weight).name + ".packed"), packed);
      jobs.push_back({*packing, original->as<float>().data(), reinterpret_cast<float*>(data)});
    }
    node.inputs[1] = it->second;
    node.attrs["packed"] = packing->panel;
    node.attrs["packed_shape"] = original->dims;
  }
  run(jobs);
  if (!jobs.empty()) remove_dead(g);
}

}  // namespace ingot
