// Instantiates the rows of ewise_ops.h: as bitcode symbols for the code generator, natively as a table of functions
// over chunks of elements for the interpreter.
#include "kernels/ewise_ops.h"

#include "kernels/ewise_rows.h"

namespace ingot::kernel {
namespace {

// The first argument of a row: the condition of a select, else like the others.
template <class T, EwiseRule rule>
using First = Vec<std::conditional_t<rule == EwiseRule::Select, uint8_t, T>>;

// One vector of a row; arguments beyond the row's arity are not looked at.
template <class Op, class T, int arity, EwiseRule rule>
INGOT_INLINE auto apply(const void* a, const void* b, const void* c) {
  First<T, rule> x;
  Vec<T> y, z;
  __builtin_memcpy(&x, a, sizeof x);
  if constexpr (arity > 1) __builtin_memcpy(&y, b, sizeof y);
  if constexpr (arity > 2) __builtin_memcpy(&z, c, sizeof z);
  if constexpr (arity == 1)
    return Op::template apply<T>(x);
  else if constexpr (arity == 2)
    return Op::template apply<T>(x, y);
  else
    return Op::template apply<T>(x, y, z);
}

}  // namespace

#ifdef INGOT_NATIVE
namespace {

template <class Op, class T, int arity, EwiseRule rule>
void chunk(const void* a, const void* b, const void* c, void* out, int64_t n) {
  auto* pa = static_cast<const char*>(a);
  auto* pb = static_cast<const char*>(b);
  auto* pc = static_cast<const char*>(c);
  auto* po = static_cast<char*>(out);
  for (int64_t i = 0; i < n; i += kLanes) {
    auto r = apply<Op, T, arity, rule>(pa, pb, pc);
    __builtin_memcpy(po, &r, sizeof r);
    pa += sizeof(First<T, rule>);
    if constexpr (arity > 1) pb += sizeof(Vec<T>);
    if constexpr (arity > 2) pc += sizeof(Vec<T>);
    po += sizeof r;
  }
}

constexpr EwiseKernel kTable[] = {
#define INGOT_ENTRY(DTYPE, T, D, NAME, ARITY, RULE) {#NAME, DType::D, chunk<op_##NAME, T, ARITY, EwiseRule::RULE>},
#define INGOT_ROW(NAME, ARITY, TYPES, RULE) INGOT_EWISE_TYPES_##TYPES(INGOT_ENTRY, NAME, ARITY, RULE)
    INGOT_EWISE_OPS(INGOT_ROW)
#undef INGOT_ROW
#undef INGOT_ENTRY
};

}  // namespace
}  // namespace ingot::kernel

extern "C" const ingot::EwiseKernel* ingot::ingot_find_ewise(const char* op, int32_t dtype) {
  for (const EwiseKernel& k : kernel::kTable)
    if (static_cast<int32_t>(k.dtype) == dtype && __builtin_strcmp(k.op, op) == 0) return &k;
  return nullptr;
}

#else

#define INGOT_ARGUMENTS_1 const void* a
#define INGOT_ARGUMENTS_2 const void *a, const void *b
#define INGOT_ARGUMENTS_3 const void *a, const void *b, const void *c
#define INGOT_PASS_1 a, nullptr, nullptr
#define INGOT_PASS_2 a, b, nullptr
#define INGOT_PASS_3 a, b, c
#define INGOT_SYMBOL(DTYPE, T, D, NAME, ARITY, RULE)                              \
  extern "C" void ingot_op_##NAME##_##DTYPE(INGOT_ARGUMENTS_##ARITY, void* out) { \
    auto r = apply<op_##NAME, T, ARITY, EwiseRule::RULE>(INGOT_PASS_##ARITY);     \
    __builtin_memcpy(out, &r, sizeof r);                                          \
  }
#define INGOT_ROW(NAME, ARITY, TYPES, RULE) INGOT_EWISE_TYPES_##TYPES(INGOT_SYMBOL, NAME, ARITY, RULE)
INGOT_EWISE_OPS(INGOT_ROW)

}  // namespace ingot::kernel
#endif
