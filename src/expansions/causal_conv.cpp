// CausalConvWithState: each channel of [past_state, input] convolved with its own k taps, so that a result sees its own
// and the k - 1 elements before it; what comes before the first is zero. present_state: the last k - 1 elements.
#include "expansions/expander.h"

namespace ingot {
namespace {

void expand_causal_conv(Expander& e) {
  const TensorId input = e.in(0), weight = e.in(1);
  e.require(e.rank(input) == 3 && e.rank(weight) == 3, "input and weight are of ranks {} and {}, expected 3",
            e.rank(input), e.rank(weight));
  const std::string activation = e.node.get_string("activation", "none");
  const bool silu = activation == "silu" || activation == "swish";
  e.require(silu || activation == "none", "attribute 'activation' is '{}', expected silu, swish or none", activation);
  const int64_t channels = e.number(weight, 0), carried = e.number(weight, 2) - 1;
  e.require(carried >= 0, "the weight {} has no taps", str(e.shape(weight)));

  const TensorId all =
      e.has(3) ? e.concat({e.in(3), input}, 2) : e.emit("Pad", {input, e.ints({0, 0, carried, 0, 0, 0})});
  const TensorId y = e.emit("Conv", {all, weight, e.in_or_none(2)}, {{"group", channels}});
  e.result(0, silu ? e.emit("Swish", {y}) : y);
  e.result(1, e.slice(all, 2, carried == 0 ? kToTheEnd : -carried));
}

}  // namespace

void register_causal_conv(ExpansionRegistry& r) { r.add("CausalConvWithState", expand_causal_conv); }

}  // namespace ingot
