#include "kernels/tree_ensemble.h"

#include "kernels/any_number.h"

namespace ingot::kernel {
namespace {

struct TreeNode {
  int32_t test, feature, yes, no;
};

INGOT_INLINE bool passes(int32_t test, double x, double threshold) {
  switch (test & 7) {
    case kTreeLe:
      return x <= threshold;
    case kTreeLt:
      return x < threshold;
    case kTreeGe:
      return x >= threshold;
    case kTreeGt:
      return x > threshold;
    case kTreeEq:
      return x == threshold;
    default:
      return x != threshold;
  }
}

struct Forest {
  const TreeParams& p;
  const TreeNode* nodes;
  const double* thresholds;
  const int32_t *roots, *targets;
  const double* weights;
};

// The leaf of a row, or -1 where the tree is broken.
int64_t leaf_of(const Forest& f, int64_t at, const double* x) {
  if (at < 0 || at >= f.p.nodes) return -1;
  for (;;) {
    const TreeNode& n = f.nodes[at];
    if ((n.test & 7) >= kTreeLeaf) return at;
    if (n.feature < 0 || n.feature >= f.p.features) return -1;
    const double v = x[n.feature];
    const bool yes = passes(n.test, v, f.thresholds[at]) || (v != v && (n.test & kTreeMissing));
    const int64_t next = yes ? n.yes : n.no;
    if (next <= at || next >= f.p.nodes) return -1;
    at = next;
  }
}

INGOT_INLINE void add_vote(int64_t aggregate, double& sum, double vote) {
  if (aggregate == kTreeSum || aggregate == kTreeAverage)
    sum += vote;
  else if (sum != sum || (aggregate == kTreeMin ? vote < sum : vote > sum))  // NaN: the first
    sum = vote;
}

bool add_votes(const Forest& f, const TreeNode& leaf, double* sums) {
  if (leaf.yes < 0 || leaf.no < 0 || int64_t(leaf.yes) + leaf.no > f.p.votes) return false;
  for (int32_t v = leaf.yes; v < leaf.yes + leaf.no; v++) {
    if (f.targets[v] < 0 || f.targets[v] >= f.p.targets) return false;
    add_vote(f.p.aggregate, sums[f.targets[v]], f.weights[v]);
  }
  return true;
}

KernelStatus run_block(const KernelCall* call, const Forest& f, int64_t first) {
  const TreeParams& p = f.p;
  const int64_t rows = p.rows - first < kTreeBlock ? p.rows - first : kTreeBlock;
  auto* x = static_cast<double*>(call->scratch);
  double* sums = x + kTreeBlock * p.features;
  for (int64_t i = 0; i < rows * p.features; i++)
    x[i] = read_number(static_cast<DType>(p.x_type), call->operand[0], first * p.features + i).f;
  const bool adds = p.aggregate == kTreeSum || p.aggregate == kTreeAverage;
  for (int64_t i = 0; i < rows * p.targets; i++) sums[i] = adds ? 0 : __builtin_nan("");
  for (int64_t tree = 0; tree < p.roots; tree++)
    for (int64_t row = 0; row < rows; row++) {
      const int64_t leaf = leaf_of(f, f.roots[tree], x + row * p.features);
      if (leaf < 0 || !add_votes(f, f.nodes[leaf], sums + row * p.targets)) return kIndexOutOfRange;
    }
  const auto* base = static_cast<const double*>(call->operand[6]);
  for (int64_t i = 0; i < rows * p.targets; i++) {
    double y = sums[i] != sums[i] && !adds ? 0 : sums[i];
    if (p.aggregate == kTreeAverage && p.roots > 0) y /= double(p.roots);
    write_number(static_cast<DType>(p.y_type), true, 0, call->operand[7], first * p.targets + i,
                 real(y + base[i % p.targets]));
  }
  return kOk;
}

}  // namespace

extern "C" KernelStatus ingot_tree_ensemble(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const TreeParams*>(call->param);
  const Forest f{p,
                 static_cast<const TreeNode*>(call->operand[1]),
                 static_cast<const double*>(call->operand[2]),
                 static_cast<const int32_t*>(call->operand[3]),
                 static_cast<const int32_t*>(call->operand[4]),
                 static_cast<const double*>(call->operand[5])};
  for (int64_t u = call->begin; u < call->end; u++)
    if (const KernelStatus status = run_block(call, f, u * kTreeBlock); status != kOk) return status;
  return kOk;
}

}  // namespace ingot::kernel
