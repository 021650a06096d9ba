#include "quantizer/products.h"

#include "ops/op.h"

namespace ingot {

bool is_recurrent(const Node& n) { return n.is("LSTM") || n.is("GRU") || n.is("RNN"); }

bool is_work_in_f32(const Node& n) {
  return is_recurrent(n) || n.is("Attention") || n.is("Einsum") || n.is("DeformConv");
}

bool keeps_scale(const Node& n) {
  if (n.is("Resize")) return n.get_string("mode", "nearest") == "nearest";
  return traits(n).movement != Movement::kNone;
}

bool has_bias(const Node& n) { return is_product(n) && !n.is("MatMul") && n.has_input(2); }

std::optional<int64_t> channel_axis(const Node& n, const std::vector<int64_t>& dims) {
  const auto rank = static_cast<int64_t>(dims.size());
  if (n.is("Conv")) return 0;
  if (n.is("ConvTranspose")) return 1;
  if (n.is("Gemm")) return n.get_int("transB", 0) != 0 ? 0 : 1;
  if (rank < 2) return std::nullopt;
  return rank - 1;
}

std::optional<int64_t> reduced_axis(const Node& n, const std::vector<int64_t>& dims) {
  const auto rank = static_cast<int64_t>(dims.size());
  if (n.is("Gemm")) return n.get_int("transB", 0) != 0 ? 1 : 0;
  if (n.is("MatMul")) return rank < 2 ? 0 : rank - 2;
  return std::nullopt;
}

int64_t output_channels(const Node& n, const std::vector<int64_t>& dims) {
  const auto axis = channel_axis(n, dims);
  if (!axis) return 1;
  return dims[static_cast<size_t>(*axis)] * (n.is("ConvTranspose") ? n.get_int("group", 1) : 1);
}

int64_t result_axis(const Node& n, int64_t rank) { return n.is("Conv") || n.is("ConvTranspose") ? 1 : rank - 1; }

}  // namespace ingot
