// com.microsoft: quantized operators of onnxruntime on images whose channels lie together, [N, spatial..., C]. The
// standard operator stands between two Transposes; the pass channels_last chooses layouts anew.
#include "expansions/expander.h"

namespace ingot {
namespace {

constexpr const char* kDomain = "com.microsoft";

using Attributes = std::map<std::string, Attribute>;

TensorId channels_second(Expander& e, TensorId x) {
  const int64_t rank = e.rank(x);
  e.require(rank >= 2, "X is of rank {}, expected [N, spatial..., C]", rank);
  std::vector<int64_t> perm = {0, rank - 1};
  for (int64_t d = 1; d + 1 < rank; d++) perm.push_back(d);
  return e.transpose(x, perm);
}

TensorId channels_last(Expander& e, TensorId x) {
  const int64_t rank = e.rank(x);
  std::vector<int64_t> perm = {0};
  for (int64_t d = 2; d < rank; d++) perm.push_back(d);
  perm.push_back(1);
  return e.transpose(x, perm);
}

Attributes plain_attributes(const Expander& e) {
  Attributes attrs = e.node.attrs;
  attrs.erase("channels_last");
  return attrs;
}

void max_pool(Expander& e) {
  e.result(0, channels_last(e, e.emit("MaxPool", {channels_second(e, e.in(0))}, plain_attributes(e))));
}

// The operands are those of the standard operator, and so is the order of the weights' axes.
void qlinear_conv(Expander& e) {
  const bool last = e.node.get_int("channels_last", 0) != 0;
  std::vector<TensorId> inputs = e.node.inputs;
  inputs[0] = last ? channels_second(e, e.in(0)) : e.in(0);
  const TensorId y = e.emit("QLinearConv", inputs, plain_attributes(e));
  e.result(0, last ? channels_last(e, y) : y);
}

// (X, x_scale, x_zero, y_scale, y_zero)
void pooling(Expander& e, const char* op) {
  const TensorId x = e.emit("DequantizeLinear", {channels_second(e, e.in(0)), e.in(1), e.in_or_none(2)});
  const TensorId y = e.emit(op, {x}, plain_attributes(e));
  e.result(0, channels_last(e, e.emit("QuantizeLinear", {y, e.in(3), e.in_or_none(4)})));
}
void average_pool(Expander& e) { pooling(e, "AveragePool"); }
void global_average_pool(Expander& e) { pooling(e, "GlobalAveragePool"); }

}  // namespace

void register_microsoft_nhwc(ExpansionRegistry& r) {
  r.add("NhwcMaxPool", max_pool, kDomain);
  r.add("QLinearConv", qlinear_conv, kDomain);
  r.add("QLinearAveragePool", average_pool, kDomain);
  r.add("QLinearGlobalAveragePool", global_average_pool, kDomain);
}

}  // namespace ingot
