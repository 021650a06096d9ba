// Dropout as inference has it: the data as they are, and a mask that drops nothing. Training mode is random and
// refused, unless its ratio is 0.
#include "ops/elementwise.h"

namespace ingot {
namespace {

Expr expr(const Node& node, const std::vector<DType>& types) {
  Expr e;
  e.input_types = types;
  e.results = {e.input(0)};
  e.result_types = {types[0]};
  if (node.has_output(1)) {
    e.results.push_back(e.constant(1, DType::Bool));
    e.result_types.push_back(DType::Bool);
  }
  return e;
}

void infer(InferContext& ctx) {
  if (ctx.has(2)) {
    const auto training = ctx.values(2);
    const bool trains = training && !training->empty() && (*training)[0].is(1);
    const auto ratio = ctx.has(1) ? ctx.scalar(1) : 0.5;
    if (trains && !ratio && ctx.at_run_time()) throw ValuesNeeded{1};
    if (trains && ratio && *ratio != 0)
      throw Error(ErrorKind::Unsupported, ctx.node.label() + ": drops at random in training mode",
                  "export the model for inference");
  }
  infer_like_first(ctx);
}

}  // namespace

void register_dropout(OpRegistry& r) { r.add({"Dropout", "", 1, 3, 1, 2, infer, lower_elementwise, expr}); }

}  // namespace ingot
