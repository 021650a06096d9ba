// How every kernel is called, natively or specialised.
//
// A kernel is a function `KernelStatus name(const KernelCall*)`. It computes units [begin, end) of its step;
// units are independent, so any split over threads gives the same result.
//  - operand[i]: data of the step's operands, inputs first, then outputs, then temporaries.
//  - param: the step's parameters, 8 bytes each, laid out as the Params struct in the kernel's header.
//    When a model is compiled the codegen stores those it knows as constants; inlining does the rest.
//  - program: the fused expression for the *native* build of a kernel with hooks (kernels/interpreter.h). The
//    specialised build never reads it: its hooks are machine code.
//  - scratch: private to the calling thread, as large as the step asked for, 64-byte aligned.
// Only int64_t, double and pointers cross this border.
#pragma once
#include <cstdint>

namespace ingot {

enum KernelStatus : int32_t {
  kOk = 0,
  kIndexOutOfRange = 1,
  kDivisionByZero = 2,
  kBadValue = 3,
};

struct ExprProgram;

struct KernelCall {
  void* const* operand;
  const int64_t* param;
  const ExprProgram* program;
  int64_t begin, end;
  void* scratch;
  int64_t done;  // where this thread's last range of the step ended, 0 if this is its first: scratch is as it left it
};

using KernelFn = KernelStatus (*)(const KernelCall*);

// The native builds of a kernel, one per ISA level. Each is an object of its own in the generated kernel table, so that
// linking a model.so keeps the kernels that its operators name and drops all others.
inline constexpr int kIsaLevels = 2;
struct Kernel {
  const char* name;
  KernelFn native[kIsaLevels];
};
#define INGOT_KERNEL(name) extern "C" const ::ingot::Kernel name##_kernel

}  // namespace ingot
