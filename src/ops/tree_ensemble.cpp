// ingot.TreeEnsemble (kernels/tree_ensemble.h): what the tree ensembles of ai.onnx.ml become.
#include "kernels/tree_ensemble.h"

#include "ops/layout.h"

namespace ingot {
namespace {

enum Input { kX, kNodes, kThresholds, kRoots, kTargets, kWeights, kBase };

void infer(InferContext& ctx) {
  const DType x = ctx.dtype(kX);
  ctx.set_dtype(0, ctx.node.get_int("f64", 0) ? DType::F64 : DType::F32);
  ctx.require((is_integer(x) && bits(x) >= 8) || (is_float(x) && bits(x) >= 16), "X is {}, expected numbers", name(x));
  for (size_t i : {kNodes, kRoots, kTargets})
    ctx.require(ctx.dtype(i) == DType::I32, "operand {} is {}, expected i32", i, name(ctx.dtype(i)));
  for (size_t i : {kThresholds, kWeights, kBase})
    ctx.require(ctx.dtype(i) == DType::F64, "operand {} is {}, expected f64", i, name(ctx.dtype(i)));
  const Shape &in = ctx.shape(kX), &nodes = ctx.shape(kNodes), &thresholds = ctx.shape(kThresholds);
  ctx.require(nodes.size() == 2 && nodes[1].is(4) && thresholds.size() == 1 && thresholds[0] == nodes[0],
              "the nodes are {} and the thresholds {}", str(nodes), str(thresholds));
  ctx.require(ctx.rank(kRoots) == 1 && ctx.rank(kTargets) == 1 && ctx.rank(kBase) == 1 && ctx.rank(kWeights) == 1 &&
                  ctx.shape(kWeights)[0] == ctx.shape(kTargets)[0],
              "the votes are {} and {}", str(ctx.shape(kTargets)), str(ctx.shape(kWeights)));
  const int64_t aggregate = ctx.node.get_int("aggregate", kTreeSum);
  ctx.require(aggregate >= kTreeAverage && aggregate <= kTreeMax, "aggregate is {}", aggregate);
  ctx.require(in.size() == 1 || in.size() == 2, "X is {}, expected [N, F] or [F]", str(in));
  ctx.set_shape(0, {in.size() == 2 ? in[0] : Dim(1), ctx.shape(kBase)[0]});
}

void lower(LowerContext& ctx) {
  const auto x = ctx.dims(kX);
  TreeParams p{};
  p.x_type = static_cast<int64_t>(ctx.in(kX).dtype);
  p.y_type = static_cast<int64_t>(ctx.out(0).dtype);
  p.aggregate = ctx.node.get_int("aggregate", kTreeSum);
  p.rows = x.size() == 2 ? x[0] : 1;
  p.features = x.back();
  p.targets = ctx.dims(kBase)[0];
  p.nodes = ctx.dims(kNodes)[0];
  p.roots = ctx.dims(kRoots)[0];
  p.votes = ctx.dims(kTargets)[0];
  Step& s = ctx.step(ingot_tree_ensemble_kernel);
  for (size_t i = 0; i <= kBase; i++) s.operands.push_back(ctx.input(i));
  s.operands.push_back(ctx.output(0));
  s.params = params_of(p);
  s.units = (p.rows + kTreeBlock - 1) / kTreeBlock;
  s.scratch = 8 * tree_scratch_doubles(p.features, p.targets);
}

}  // namespace

void register_tree_ensemble(OpRegistry& r) { r.add({"TreeEnsemble", "ingot", 7, 7, 1, 1, infer, lower}); }

}  // namespace ingot
