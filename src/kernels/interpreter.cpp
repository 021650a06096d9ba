// The native builds' hooks: every instruction of an expression is applied to a chunk of elements before the next.
#include "kernels/interpreter.h"

#include "kernels/half.h"
#include "kernels/hooks.h"

namespace ingot::kernel {
namespace {

enum { kInputInstr, kConstantInstr, kCallInstr };  // ExprInstr::Kind
constexpr int32_t kF16 = 10, kBF16 = 16;           // DType

template <class T>
void copy_in(const T* from, int64_t step, int64_t n, T* to) {
  if (step == 1)
    __builtin_memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
  else
    for (int64_t i = 0; i < n; i++) to[i] = from[i * step];
}
template <class T>
void copy_out(const T* from, int64_t step, int64_t n, T* to) {
  if (step == 1)
    __builtin_memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
  else
    for (int64_t i = 0; i < n; i++) to[i * step] = from[i];
}

// n elements `step` apart, widened if they are half floats.
void load_input(const ProgramInstr& in, const void* base, int64_t offset, int64_t step, int64_t n, void* out) {
  if (in.stored == kF16 || in.stored == kBF16) {
    const auto* from = static_cast<const uint16_t*>(base) + offset;
    auto* to = static_cast<float*>(out);
    for (int64_t i = 0; i < n; i += kLanes) {
      Vec<uint16_t> half = Vec<uint16_t>(uint16_t(0));
      for (int64_t l = 0; l < kLanes && i + l < n; l++) half[l] = from[(i + l) * step];
      store(to + i, in.stored == kF16 ? f16_to_f32(half) : bf16_to_f32(half));
    }
    return;
  }
  switch (in.bytes) {
    case 1:
      return copy_in(static_cast<const uint8_t*>(base) + offset, step, n, static_cast<uint8_t*>(out));
    case 2:
      return copy_in(static_cast<const uint16_t*>(base) + offset, step, n, static_cast<uint16_t*>(out));
    case 4:
      return copy_in(static_cast<const uint32_t*>(base) + offset, step, n, static_cast<uint32_t*>(out));
    default:
      return copy_in(static_cast<const uint64_t*>(base) + offset, step, n, static_cast<uint64_t*>(out));
  }
}

void store_result(int32_t stored, int32_t bytes, const void* value, int64_t step, int64_t n, void* base,
                  int64_t offset) {
  if (stored == kF16 || stored == kBF16) {
    const auto* from = static_cast<const float*>(value);
    auto* to = static_cast<uint16_t*>(base) + offset;
    for (int64_t i = 0; i < n; i += kLanes) {
      Vec<uint16_t> half = stored == kF16 ? f32_to_f16(load(from + i)) : f32_to_bf16(load(from + i));
      for (int64_t l = 0; l < kLanes && i + l < n; l++) to[(i + l) * step] = half[l];
    }
    return;
  }
  switch (bytes) {
    case 1:
      return copy_out(static_cast<const uint8_t*>(value), step, n, static_cast<uint8_t*>(base) + offset);
    case 2:
      return copy_out(static_cast<const uint16_t*>(value), step, n, static_cast<uint16_t*>(base) + offset);
    case 4:
      return copy_out(static_cast<const uint32_t*>(value), step, n, static_cast<uint32_t*>(base) + offset);
    default:
      return copy_out(static_cast<const uint64_t*>(value), step, n, static_cast<uint64_t*>(base) + offset);
  }
}

void fill(const ProgramInstr& in, int64_t n, void* out) {
  switch (in.bytes) {
    case 1:
      for (int64_t i = 0; i < n; i++) static_cast<uint8_t*>(out)[i] = static_cast<uint8_t>(in.constant);
      return;
    case 2:
      for (int64_t i = 0; i < n; i++) static_cast<uint16_t*>(out)[i] = static_cast<uint16_t>(in.constant);
      return;
    case 4:
      for (int64_t i = 0; i < n; i++) static_cast<uint32_t*>(out)[i] = static_cast<uint32_t>(in.constant);
      return;
    default:
      for (int64_t i = 0; i < n; i++) static_cast<int64_t*>(out)[i] = in.constant;
      return;
  }
}

// Registers are `stride` bytes apart. load(instruction, register) fills in the inputs.
template <class Load>
INGOT_INLINE void run_program(const ExprProgram& p, char* registers, int64_t stride, int64_t n, Load load_one) {
  for (int64_t i = 0; i < p.length; i++) {
    const ProgramInstr& in = p.code[i];
    char* out = registers + i * stride;
    if (in.kind == kInputInstr)
      load_one(in, out);
    else if (in.kind == kConstantInstr)
      fill(in, n, out);
    else
      in.apply(registers + in.arg[0] * stride, registers + in.arg[1] * stride, registers + in.arg[2] * stride, out, n);
  }
}

}  // namespace

void interpret_row(void* const* operand, const int64_t* offset, const EwiseParams& p, int64_t start, int64_t n,
                   const ExprProgram* program, void* scratch) {
  auto* registers = static_cast<char*>(scratch);
  const int64_t stride = kInterpreterChunk * 8, last = p.rank - 1;
  for (int64_t done = 0; done < n; done += kInterpreterChunk) {
    const int64_t count = n - done < kInterpreterChunk ? n - done : kInterpreterChunk, at = start + done;
    run_program(*program, registers, stride, count, [&](const ProgramInstr& in, void* out) {
      const int64_t step = p.strides[in.input][last];
      load_input(in, operand[in.input], offset[in.input] + at * step, step, count, out);
    });
    for (int64_t r = 0; r < program->result_count; r++) {
      const int64_t o = p.inputs + r, step = p.strides[o][last], reg = program->results[r];
      store_result(program->result_types[r], program->code[reg].bytes, registers + reg * stride, step, count,
                   operand[o], offset[o] + at * step);
    }
  }
}

namespace {

// Registers of one vector each, after all instructions of an epilogue.
struct EpilogueRegisters {
  static constexpr int64_t kStride = kLanes * 8;
  alignas(64) char at[kMaxProgramLength * kStride];

  template <class V>
  void run(V acc, void* const* extra, const EpilogueOperand* strides, int64_t row, int64_t col, int64_t lanes,
           const ExprProgram& program) {
    run_program(program, at, kStride, lanes, [&](const ProgramInstr& in, void* out) {
      if (in.input == 0) {
        __builtin_memcpy(out, &acc, sizeof acc);
        return;
      }
      const EpilogueOperand& s = strides[in.input - 1];
      load_input(in, extra[in.input - 1], row * s.row_stride + col * s.col_stride, s.col_stride, lanes, out);
    });
  }
};

}  // namespace

extern "C" VF ingot_hook_epilogue(VF acc, void* const* extra, const EpilogueOperand* strides, int64_t row, int64_t col,
                                  int64_t lanes, const ExprProgram* program) {
  if (!program) return acc;  // nothing is fused
  EpilogueRegisters registers;
  registers.run(acc, extra, strides, row, col, lanes, *program);
  return load(reinterpret_cast<const float*>(registers.at + program->results[0] * EpilogueRegisters::kStride));
}

extern "C" void ingot_hook_store(VI acc, void* out, int64_t at, void* const* extra, const EpilogueOperand* strides,
                                 int64_t row, int64_t col, int64_t lanes, const ExprProgram* program) {
  if (!program) return store_partial(static_cast<int32_t*>(out) + at, acc, lanes);
  EpilogueRegisters registers;
  registers.run(acc, extra, strides, row, col, lanes, *program);
  const int32_t result = program->results[0];
  store_result(program->result_types[0], program->code[result].bytes,
               registers.at + result * EpilogueRegisters::kStride, 1, lanes, out, at);
}

}  // namespace ingot::kernel
