#include "kernels/lookup.h"

#include "kernels/any_number.h"

namespace ingot::kernel {
namespace {

// The last of n keys that is x, or n.
template <class K>
int64_t find(const K* keys, int64_t n, K x) {
  int64_t low = 0, high = n;  // keys before `low` are at most x, those from `high` on above
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const bool above = keys[middle] > x || (keys[middle] != keys[middle] && x == x);
    if (above)
      high = middle;
    else
      low = middle + 1;
  }
  if (low == 0) return n;
  const K found = keys[low - 1];
  return found == x || (found != found && x != x) ? low - 1 : n;
}

}  // namespace

extern "C" KernelStatus ingot_lookup(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const LookupParams*>(call->param);
  const int64_t end = call->end * kLookupChunk < p.count ? call->end * kLookupChunk : p.count;
  const auto* values = static_cast<const char*>(call->operand[2]);
  for (int64_t i = call->begin * kLookupChunk; i < end; i++) {
    const Number x = read_number(static_cast<DType>(p.x_type), call->operand[0], i);
    const int64_t at = p.integer_keys ? find(static_cast<const int64_t*>(call->operand[1]), p.keys, integer(x))
                                      : find(static_cast<const double*>(call->operand[1]), p.keys, x.f);
    if (p.strict && at == p.keys) return kBadValue;
    __builtin_memcpy(static_cast<char*>(call->operand[3]) + i * p.value_bytes, values + at * p.value_bytes,
                     static_cast<size_t>(p.value_bytes));
  }
  return kOk;
}

}  // namespace ingot::kernel
