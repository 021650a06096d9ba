#include "kernels/ewise_reduce.h"

#include "kernels/hooks.h"
#include "kernels/interpreter.h"
#include "kernels/reduce_ops.h"

namespace ingot::kernel {
namespace {

constexpr int64_t kColumnBlock = 128;  // rows added in float before going to double

struct Scratch {
  float* values;
  float* partial;
  double* total;
  void* rest;
};
INGOT_INLINE Scratch cut(void* memory) {
  auto* values = static_cast<float*>(memory);
  auto* total = reinterpret_cast<double*>(values + kEwiseReduceStretch);
  auto* partial = reinterpret_cast<float*>(total + kEwiseReduceColumns);
  return {values, partial, total, partial + kEwiseReduceColumns};
}

// A position in the space without its innermost dim: the kept part fixed, the reduced part walked.
struct Position {
  const EwiseParams& p;
  int64_t index[kEwiseMaxRank];
  int64_t offset[kEwiseMaxOperands];

  __attribute__((always_inline)) bool reduced(int64_t d) const { return p.strides[p.inputs][d] == 0; }
  __attribute__((always_inline)) Position(const EwiseParams& params, int64_t kept) : p(params) {
    for (int64_t o = 0; o < p.inputs; o++) offset[o] = 0;
    for (int64_t d = p.rank - 2; d >= 0; d--) {
      index[d] = 0;
      if (reduced(d)) continue;
      for (int64_t o = 0; o < p.inputs; o++) offset[o] += kept % p.dims[d] * p.strides[o][d];
      kept /= p.dims[d];
    }
  }
  __attribute__((always_inline)) bool next() {
    for (int64_t d = p.rank - 2; d >= 0; d--) {
      if (!reduced(d)) continue;
      const bool more = ++index[d] < p.dims[d];
      for (int64_t o = 0; o < p.inputs; o++) offset[o] += (more ? 1 : 1 - p.dims[d]) * p.strides[o][d];
      if (more) return true;
      index[d] = 0;
    }
    return false;
  }
};

// values[0, n) = f at elements [start, start + n) of the row at `at`.
INGOT_INLINE void evaluate(const KernelCall* call, const EwiseParams& p, Position& at, int64_t start, int64_t n,
                           const Scratch& s) {
  void* operand[kEwiseMaxOperands];
  for (int64_t o = 0; o < p.inputs; o++) operand[o] = call->operand[o];
  operand[p.inputs] = s.values;
  at.offset[p.inputs] = -start;
#ifdef INGOT_NATIVE
  interpret_row(operand, at.offset, p, start, n, call->program, s.rest);
#else
  int64_t i = start;
  for (; i + kLanes <= start + n; i += kLanes) ingot_hook_ewise(operand, at.offset, &p, i, kLanes);
  if (i < start + n) ingot_hook_ewise(operand, at.offset, &p, i, start + n - i);
#endif
}

template <int K>
INGOT_INLINE void reduce_rows(const KernelCall* call, const EwiseReduceParams& p, const Scratch& s) {
  auto* out = static_cast<float*>(call->operand[p.space.inputs]);
  const int64_t n = p.space.dims[p.space.rank - 1];
  for (int64_t u = call->begin; u < call->end; u++) {
    Position at(p.space, u);
    double r = identity<K, float>();
    do {
      for (int64_t i = 0; i < n && p.count; i += kEwiseReduceStretch) {
        const int64_t len = n - i < kEwiseReduceStretch ? n - i : kEwiseReduceStretch;
        evaluate(call, p.space, at, i, len, s);
        r = combine<K, double>(r, double(reduce_block<K, kPreNone, float>(s.values, len, VF(0.f))));
      }
    } while (p.count && at.next());
    out[u] = float(p.kind == kReduceMean ? r / double(p.count) : r);
  }
}

template <int K>
INGOT_INLINE void reduce_columns(const KernelCall* call, const EwiseReduceParams& p, const Scratch& s) {
  auto* out = static_cast<float*>(call->operand[p.space.inputs]);
  const int64_t width = p.space.dims[p.space.rank - 1];
  const int64_t blocks = (width + kEwiseReduceColumns - 1) / kEwiseReduceColumns;
  for (int64_t u = call->begin; u < call->end; u++) {
    const int64_t first = u % blocks * kEwiseReduceColumns;
    const int64_t n = width - first < kEwiseReduceColumns ? width - first : kEwiseReduceColumns;
    for (int64_t j = 0; j < n; j++) s.total[j] = identity<K, float>();
    Position at(p.space, u / blocks);
    bool more = p.count > 0;
    while (more) {
      for (int64_t j = 0; j < n; j++) s.partial[j] = identity<K, float>();
      for (int64_t r = 0; r < kColumnBlock && more; r++) {
        evaluate(call, p.space, at, first, n, s);
        for (int64_t j = 0; j < n; j++) s.partial[j] = combine<K, float>(s.partial[j], s.values[j]);
        more = at.next();
      }
      for (int64_t j = 0; j < n; j++) s.total[j] = combine<K, double>(s.total[j], double(s.partial[j]));
    }
    for (int64_t j = 0; j < n; j++)
      out[u / blocks * width + first + j] = float(p.kind == kReduceMean ? s.total[j] / double(p.count) : s.total[j]);
  }
}

template <int K>
INGOT_INLINE KernelStatus reduce(const KernelCall* call, const EwiseReduceParams& p) {
  const Scratch s = cut(call->scratch);
  if (p.inner_kept)
    reduce_columns<K>(call, p, s);
  else
    reduce_rows<K>(call, p, s);
  return kOk;
}

}  // namespace

extern "C" KernelStatus ingot_ewise_reduce(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const EwiseReduceParams*>(call->param);
  switch (p.kind) {
    case kReduceSum:
    case kReduceMean:
      return reduce<kReduceSum>(call, p);
    case kReduceProd:
      return reduce<kReduceProd>(call, p);
    case kReduceMax:
      return reduce<kReduceMax>(call, p);
    case kReduceMin:
      return reduce<kReduceMin>(call, p);
    default:
      return kBadValue;
  }
}

}  // namespace ingot::kernel
