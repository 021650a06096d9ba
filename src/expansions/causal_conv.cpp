// CausalConvWithState: each channel of [past_state, input] convolved with its own k taps, so that a result sees its own
// and the k - 1 elements before it; what comes before the first is zero. present_state: the last k - 1 elements. This
// is Conv with a group per channel; where the number of channels is told at run time only, a product of each channel's
// windows with its taps.
#include "expansions/expander.h"

namespace ingot {
namespace {

// The input with k - 1 elements before it: the carried ones, or zeros.
TensorId with_past(Expander& e, TensorId input, TensorId weight) {
  if (e.has(3)) {
    const Size taps = e.size(weight, 2), carried = e.size(e.in(3), 2);
    e.require(!taps.is_number() || !carried.is_number() || carried.number == taps.number - 1,
              "past_state is {}, expected {} elements for {} taps", str(e.shape(e.in(3))), taps.number - 1,
              taps.number);
    return e.concat({e.in(3), input}, 2);
  }
  const TensorId before = e.emit("Sub", {e.sizes({e.size(weight, 2)}), e.ints({1})});
  return e.emit("Pad", {input, e.concat({before, e.ints({0})}, 0), kNoTensor, e.ints({2})});
}

TensorId convolve(Expander& e, TensorId all, TensorId input, TensorId weight) {
  for (const Size& channels : {e.size(weight, 0), e.size(input, 1)})
    if (channels.is_number()) return e.emit("Conv", {all, weight, e.in_or_none(2)}, {{"group", channels.number}});
  const TensorId first = e.unsqueeze(e.count_up(e.size(input, 2)), {1}), tap = e.count_up(e.size(weight, 2));
  const TensorId windows = e.emit("Gather", {all, e.emit("Add", {first, tap})}, {{"axis", int64_t{2}}});
  const TensorId y = e.squeeze(e.emit("MatMul", {windows, e.transpose(weight, {0, 2, 1})}), {3});
  return e.has(2) ? e.emit("Add", {y, e.unsqueeze(e.in(2), {1})}) : y;
}

void expand_causal_conv(Expander& e) {
  const TensorId input = e.in(0), weight = e.in(1);
  e.require(e.rank(input) == 3 && e.rank(weight) == 3, "input and weight are of ranks {} and {}, expected 3",
            e.rank(input), e.rank(weight));
  const std::string activation = e.node.get_string("activation", "none");
  const bool silu = activation == "silu" || activation == "swish";
  e.require(silu || activation == "none", "attribute 'activation' is '{}', expected silu, swish or none", activation);
  const Size taps = e.size(weight, 2);
  e.require(!taps.is_number() || taps.number > 0, "the weight {} has no taps", str(e.shape(weight)));

  const TensorId all = with_past(e, input, weight), y = convolve(e, all, input, weight);
  e.result(0, silu ? e.emit("Swish", {y}) : y);
  e.result(1, e.slice(all, 2, e.size(input, 2)));
}

}  // namespace

void register_causal_conv(ExpansionRegistry& r) { r.add("CausalConvWithState", expand_causal_conv); }

}  // namespace ingot
