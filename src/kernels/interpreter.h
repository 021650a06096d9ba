// Expressions for the native builds of kernels: what specialised kernels have as machine code, the native ones
// interpret, an operator over a chunk of elements at a time.
#pragma once
#include <cstdint>

#include "kernels/abi.h"
#include "kernels/ewise_ops.h"

namespace ingot {

inline constexpr int64_t kInterpreterChunk = 256;  // elements an instruction handles at once
inline constexpr int kMaxProgramLength = 128;

struct ProgramInstr {
  int32_t kind;    // ExprInstr::Kind
  int32_t input;   // kInput
  int32_t arg[3];  // kCall: registers
  int32_t bytes;   // element size of the value
  int32_t stored;  // kInput: DType in memory (F16 and BF16 are widened)
  int32_t pad;
  int64_t constant;    // kConstant: the bits of the value
  EwiseChunkFn apply;  // kCall
};

struct ExprProgram {
  const ProgramInstr* code;
  int64_t length;
  const int32_t* results;       // register of each result
  const int32_t* result_types;  // DType in memory
  int64_t result_count;
};

// Scratch that interpret_row needs: a register of kInterpreterChunk elements for each instruction.
inline int64_t program_scratch_bytes(const ExprProgram& p) { return p.length * kInterpreterChunk * 8; }

}  // namespace ingot
