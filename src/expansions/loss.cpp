// NegativeLogLikelihoodLoss:  loss = -w[t] x[n, t, d...],  t = target[n, d...]; zero where t is ignore_index.
//   mean: sum of loss / sum of w[t], the ignored left out.
// SoftmaxCrossEntropyLoss: the same of log(softmax(x)) over the classes, which is its second result.
#include <numeric>

#include "expansions/expander.h"

namespace ingot {
namespace {

std::vector<int64_t> all_axes(const Expander& e, TensorId t) {
  std::vector<int64_t> axes(static_cast<size_t>(e.rank(t)));
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

TensorId loss_of(Expander& e, TensorId x, TensorId target, TensorId weight) {
  const DType type = e.dtype(x);
  e.require(e.rank(x) >= 2 && e.rank(target) == e.rank(x) - 1,
            "the input is of rank {} and the target of rank {}, expected one less", e.rank(x), e.rank(target));
  const std::string reduction = e.node.get_string("reduction", "mean");
  e.require(reduction == "mean" || reduction == "sum" || reduction == "none",
            "attribute 'reduction' is '{}', expected mean, sum or none", reduction);

  TensorId ignored = kNoTensor;
  if (e.node.has("ignore_index")) {
    const DType index = e.dtype(target);
    ignored = e.emit("Equal", {target, e.scalar(static_cast<double>(e.node.get_int("ignore_index", 0)), index)});
    target = e.emit("Where", {ignored, e.scalar(0, index), target});
  }
  TensorId loss = e.emit("GatherElements", {x, e.unsqueeze(target, {1})}, {{"axis", int64_t{1}}});
  loss = e.emit("Neg", {e.squeeze(loss, {1})});
  TensorId weights = weight == kNoTensor ? kNoTensor : e.emit("Gather", {weight, target});
  if (weights != kNoTensor) loss = e.emit("Mul", {loss, weights});
  if (ignored != kNoTensor) {
    const TensorId zero = e.scalar(0, type);
    loss = e.emit("Where", {ignored, zero, loss});
    weights = e.emit("Where", {ignored, zero, weights == kNoTensor ? e.scalar(1, type) : weights});
  }
  if (reduction == "none") return loss;
  if (reduction == "mean" && weights == kNoTensor) return e.reduce("ReduceMean", loss, all_axes(e, loss));
  const TensorId sum = e.reduce("ReduceSum", loss, all_axes(e, loss));
  return reduction == "sum" ? sum : e.emit("Div", {sum, e.reduce("ReduceSum", weights, all_axes(e, weights))});
}

void expand_negative_log_likelihood(Expander& e) { e.result(0, loss_of(e, e.in(0), e.in(1), e.in_or_none(2))); }

void expand_softmax_cross_entropy(Expander& e) {
  e.require(e.rank(e.in(0)) >= 2, "the scores are of rank {}, expected at least 2", e.rank(e.in(0)));
  const TensorId log_prob = e.emit("LogSoftmax", {e.in(0)}, {{"axis", int64_t{1}}});
  e.result(0, loss_of(e, log_prob, e.in(1), e.in_or_none(2)));
  e.result(1, log_prob);
}

}  // namespace

void register_loss(ExpansionRegistry& r) {
  r.add("NegativeLogLikelihoodLoss", expand_negative_log_likelihood);
  r.add("SoftmaxCrossEntropyLoss", expand_softmax_cross_entropy);
}

}  // namespace ingot
