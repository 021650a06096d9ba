// The element-wise operators: one row each. This header holds no vector code, so that whatever builds, types or reads
// expressions can include it; kernels/ewise_rows.h says what each row computes.
//
// Symbols made of a row, for every element type it takes (f16 and bf16 are f32 inside expressions):
//  - bitcode:  void ingot_op_<op>_<dtype>(const Vec* a[, const Vec* b[, const Vec* c]], Vec* out)
//    The vectors pass through memory, so that one IR signature serves all types; inlining removes the memory.
//  - native:   ingot_find_ewise("<op>", dtype)->apply(a, b, c, out, n), over n contiguous elements.
// <dtype> is the type of the operator's last argument: ingot_op_where_f32, ingot_op_lt_i64, ingot_op_cast_u8_f32 (to
// u8).
#pragma once
#include <cstdint>

#include "base/dtype.h"
#include "kernels/abi.h"

namespace ingot {

// The element types of a row: Single f32, Float f32 f64, Integer i8..u64, Number both, Signed all but unsigned integers
// and bool, Bool, Any all of them.
enum class EwiseTypes { Single, Float, Integer, Number, Signed, Bool, Any };

// Same: all arguments and the result are of one type T. Test: T arguments, a bool result. Select: (bool, T, T) -> T.
// Cast: from T to the type the operator's name ends with.
enum class EwiseRule { Same, Test, Select, Cast };

// X(name, arity, types, rule)
#define INGOT_EWISE_OPS(X)                                                     \
  X(add, 2, Number, Same)                                                      \
  X(sub, 2, Number, Same)                                                      \
  X(mul, 2, Number, Same)                                                      \
  X(div, 2, Number, Same)  /* integers truncate; x / 0 = 0, MIN / -1 wraps */  \
  X(mod, 2, Integer, Same) /* the sign of the divisor; x mod 0 = 0 */          \
  X(fmod, 2, Number, Same) /* the sign of the dividend; of integers by 0: 0 */ \
  X(min, 2, Number, Same)  /* NaN if either is */                              \
  X(max, 2, Number, Same)                                                      \
  X(pow, 2, Number, Same)                                                      \
  X(fma3, 3, Number, Same) /* a b + c */                                       \
  X(neg, 1, Signed, Same)                                                      \
  X(abs, 1, Number, Same)                                                      \
  X(sign, 1, Number, Same)                                                     \
  X(square, 1, Number, Same)                                                   \
  X(floor, 1, Float, Same)                                                     \
  X(ceil, 1, Float, Same)                                                      \
  X(round, 1, Float, Same) /* half to even */                                  \
  X(trunc, 1, Float, Same)                                                     \
  X(round_f16, 1, Single, Same) /* to the nearest f16, half to even */         \
  X(round_bf16, 1, Single, Same)                                               \
  X(sqrt, 1, Float, Same)                                                      \
  X(rsqrt, 1, Float, Same)                                                     \
  X(recip, 1, Float, Same)                                                     \
  X(exp, 1, Float, Same)                                                       \
  X(log, 1, Float, Same)                                                       \
  X(log1p, 1, Float, Same)                                                     \
  X(expm1, 1, Float, Same)                                                     \
  X(erf, 1, Float, Same)                                                       \
  X(sin, 1, Float, Same)                                                       \
  X(cos, 1, Float, Same)                                                       \
  X(tan, 1, Float, Same)                                                       \
  X(asin, 1, Float, Same)                                                      \
  X(acos, 1, Float, Same)                                                      \
  X(atan, 1, Float, Same)                                                      \
  X(sinh, 1, Float, Same)                                                      \
  X(cosh, 1, Float, Same)                                                      \
  X(tanh, 1, Float, Same)                                                      \
  X(asinh, 1, Float, Same)                                                     \
  X(acosh, 1, Float, Same)                                                     \
  X(atanh, 1, Float, Same)                                                     \
  X(sigmoid, 1, Float, Same)                                                   \
  X(softplus, 1, Float, Same)                                                  \
  X(softsign, 1, Float, Same)                                                  \
  X(relu, 1, Signed, Same)                                                     \
  X(silu, 1, Float, Same)                                                      \
  X(gelu, 1, Float, Same)                                                      \
  X(gelu_tanh, 1, Float, Same)                                                 \
  X(hardswish, 1, Float, Same)                                                 \
  X(mish, 1, Float, Same)                                                      \
  X(leaky_relu, 2, Float, Same)       /* x, alpha */                           \
  X(elu, 2, Float, Same)              /* x, alpha */                           \
  X(celu, 2, Float, Same)             /* x, alpha */                           \
  X(selu, 3, Float, Same)             /* x, alpha, gamma */                    \
  X(thresholded_relu, 2, Float, Same) /* x, alpha */                           \
  X(hard_sigmoid, 3, Float, Same)     /* x, alpha, beta */                     \
  X(prelu, 2, Number, Same)           /* x, slope */                           \
  X(shrink, 3, Number, Same)          /* x, bias, lambd */                     \
  X(clip, 3, Number, Same)            /* x, lo, hi */                          \
  X(where, 3, Any, Select)            /* condition, a, b */                    \
  X(eq, 2, Any, Test)                                                          \
  X(ne, 2, Any, Test)                                                          \
  X(lt, 2, Number, Test)                                                       \
  X(le, 2, Number, Test)                                                       \
  X(gt, 2, Number, Test)                                                       \
  X(ge, 2, Number, Test)                                                       \
  X(isnan, 1, Float, Test)                                                     \
  X(isinf, 1, Float, Test)                                                     \
  X(isinf_pos, 1, Float, Test)                                                 \
  X(isinf_neg, 1, Float, Test)                                                 \
  X(and, 2, Bool, Same)                                                        \
  X(or, 2, Bool, Same)                                                         \
  X(xor, 2, Bool, Same)                                                        \
  X(not, 1, Bool, Same)                                                        \
  X(bitand, 2, Integer, Same)                                                  \
  X(bitor, 2, Integer, Same)                                                   \
  X(bitxor, 2, Integer, Same)                                                  \
  X(bitnot, 1, Integer, Same)                                                  \
  X(shl, 2, Integer, Same) /* counts outside [0, width) give 0 */              \
  X(shr, 2, Integer, Same)                                                     \
  X(cast_f32, 1, Any, Cast)                                                    \
  X(cast_f64, 1, Any, Cast)                                                    \
  X(cast_i8, 1, Any, Cast)                                                     \
  X(cast_i16, 1, Any, Cast)                                                    \
  X(cast_i32, 1, Any, Cast)                                                    \
  X(cast_i64, 1, Any, Cast)                                                    \
  X(cast_u8, 1, Any, Cast)                                                     \
  X(cast_u16, 1, Any, Cast)                                                    \
  X(cast_u32, 1, Any, Cast)                                                    \
  X(cast_u64, 1, Any, Cast)                                                    \
  X(cast_bool, 1, Any, Cast)                                                   \
  X(quantize_u8, 2, Float, Cast) /* x, zero: round(x) + zero, saturated */     \
  X(quantize_i8, 2, Float, Cast)

// The element types of each set: X(dtype name, C++ type, DType, ...)
#define INGOT_EWISE_TYPES_Single(X, ...) X(f32, float, F32, __VA_ARGS__)
#define INGOT_EWISE_FLOAT(X, ...) X(f32, float, F32, __VA_ARGS__) X(f64, double, F64, __VA_ARGS__)
#define INGOT_EWISE_SIGNED_INTEGER(X, ...) \
  X(i8, int8_t, I8, __VA_ARGS__)           \
  X(i16, int16_t, I16, __VA_ARGS__) X(i32, int32_t, I32, __VA_ARGS__) X(i64, int64_t, I64, __VA_ARGS__)
#define INGOT_EWISE_UNSIGNED_INTEGER(X, ...) \
  X(u8, uint8_t, U8, __VA_ARGS__)            \
  X(u16, uint16_t, U16, __VA_ARGS__) X(u32, uint32_t, U32, __VA_ARGS__) X(u64, uint64_t, U64, __VA_ARGS__)
#define INGOT_EWISE_TYPES_Float(X, ...) INGOT_EWISE_FLOAT(X, __VA_ARGS__)
#define INGOT_EWISE_TYPES_Integer(X, ...) \
  INGOT_EWISE_SIGNED_INTEGER(X, __VA_ARGS__) INGOT_EWISE_UNSIGNED_INTEGER(X, __VA_ARGS__)
#define INGOT_EWISE_TYPES_Number(X, ...) INGOT_EWISE_FLOAT(X, __VA_ARGS__) INGOT_EWISE_TYPES_Integer(X, __VA_ARGS__)
#define INGOT_EWISE_TYPES_Signed(X, ...) INGOT_EWISE_FLOAT(X, __VA_ARGS__) INGOT_EWISE_SIGNED_INTEGER(X, __VA_ARGS__)
#define INGOT_EWISE_TYPES_Bool(X, ...) X(bool, uint8_t, Bool, __VA_ARGS__)
#define INGOT_EWISE_TYPES_Any(X, ...) INGOT_EWISE_TYPES_Number(X, __VA_ARGS__) INGOT_EWISE_TYPES_Bool(X, __VA_ARGS__)

struct EwiseOp {
  const char* name;
  int arity;
  EwiseTypes types;
  EwiseRule rule;
};

inline constexpr EwiseOp kEwiseOps[] = {
#define INGOT_ROW(NAME, ARITY, TYPES, RULE) {#NAME, ARITY, EwiseTypes::TYPES, EwiseRule::RULE},
    INGOT_EWISE_OPS(INGOT_ROW)
#undef INGOT_ROW
};

// Whether `types` has rows for the element type; never for f16 and bf16, which are f32 inside expressions.
constexpr bool contains(EwiseTypes types, DType t) {
  const bool floating = t == DType::F32 || t == DType::F64;
  const bool is_signed_integer = t == DType::I8 || t == DType::I16 || t == DType::I32 || t == DType::I64;
  const bool is_unsigned = t == DType::U8 || t == DType::U16 || t == DType::U32 || t == DType::U64;
  const bool boolean = t == DType::Bool;
  switch (types) {
    case EwiseTypes::Single:
      return t == DType::F32;
    case EwiseTypes::Float:
      return floating;
    case EwiseTypes::Integer:
      return is_signed_integer || is_unsigned;
    case EwiseTypes::Number:
      return floating || is_signed_integer || is_unsigned;
    case EwiseTypes::Signed:
      return floating || is_signed_integer;
    case EwiseTypes::Bool:
      return boolean;
    case EwiseTypes::Any:
      return floating || is_signed_integer || is_unsigned || boolean;
  }
  return false;
}

// Applies one operator to n elements; buffers have room up to the next whole vector, and `out` may be an argument.
using EwiseChunkFn = void (*)(const void* a, const void* b, const void* c, void* out, int64_t n);

struct EwiseKernel {
  const char* op;
  DType dtype;  // of the last argument
  EwiseChunkFn apply;
};

// Of one native build, which appends its name to the symbol; null when there is no such row.
extern "C" const EwiseKernel* ingot_find_ewise(const char* op, int32_t dtype);
INGOT_KERNEL(ingot_find_ewise);  // not called as a kernel: a cast gives it its own type back

}  // namespace ingot
