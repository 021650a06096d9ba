// ingot.Conv(X, W, ...) of a constant 3x3 filter, stride 1 -> the same with attribute winograd, the side of its tiles,
// where that is faster (kernels/conv_winograd.h).
#include "matcher/fusion.h"
#include "ops/conv.h"

namespace ingot {
namespace {

std::string choose(Editor& e, Editor::Handle h) {
  const Node& n = e.node(h);
  const TensorInfo &w = e.info(n.inputs[1]), &y = e.info(n.outputs[0]);
  if (!w.constant || !y.shape) return "the filter is not a constant, or the shape of the result is not known";
  const std::vector<int64_t>& dims = w.constant->dims;
  const ImageLayout layout{dims.size(), channels_last(n)};
  const Window window = window_of(n, layout.spatial_rank(), {dims.begin() + 2, dims.end()});
  if (!fits_winograd(window, n.get_int("group", 1), dims)) return "not 3x3 with stride 1 in one group";
  const auto side = [&](size_t d) {
    const Dim& size = (*y.shape)[layout.spatial(d)];
    return size.is_const() ? size.value() : kernel::kUnknownSide;
  };
  const int64_t m = kernel::winograd_best(dims[1], dims[0], side(0), side(1));
  if (m == 0) return fmt::format("{} to {} channels of {} are faster directly", dims[1], dims[0], str(*y.shape));
  e.edit(h).attrs["winograd"] = m;
  return "";
}

bool is_wanted(const Node& n) { return n.is("Conv", "ingot") && !n.has("winograd"); }
void run(Editor& e, const Explain& explain) { fuse_each(e, explain, is_wanted, choose); }

}  // namespace

void register_winograd(FusionRegistry& registry) {
  registry.add({.name = "winograd",
                .formula = "conv(X, W) of 3x3, stride 1 -> A^T [(G W G^T) * (B^T X B)] A, tiles of 2x2 or 4x4",
                .pass = run});
}

}  // namespace ingot
