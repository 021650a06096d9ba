// The native builds' hooks: every instruction of an expression is applied to a chunk of elements before the next.
#include "kernels/interpreter.h"

#include "kernels/half.h"
#include "kernels/hooks.h"
#include "kernels/microkernel.h"

namespace ingot::kernel {
namespace {

enum { kInputInstr, kConstantInstr, kCallInstr };  // ExprInstr::Kind
constexpr int32_t kF16 = 10, kBF16 = 16;           // DType

// A row of a tile is a few vectors, for which memcpy would be a call.
template <class T>
INGOT_INLINE void copy_row(const T* from, int64_t n, T* to) {
  int64_t i = 0;
#pragma clang loop unroll(disable)
  for (; i + kLanes <= n; i += kLanes) store(to + i, load(from + i));
#pragma clang loop unroll(disable) vectorize(disable)
  for (; i < n; i++) to[i] = from[i];
}
template <class T>
void copy_in(const T* from, int64_t step, int64_t n, T* to) {
  if (step == 1)
    copy_row(from, n, to);
  else
    for (int64_t i = 0; i < n; i++) to[i] = from[i * step];
}
template <class T>
void copy_out(const T* from, int64_t step, int64_t n, T* to) {
  if (step == 1)
    copy_row(from, n, to);
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

// A register for each instruction. load(instruction, its register) fills in the inputs; it may give a register another
// place.
template <class Load>
INGOT_INLINE void run_program(const ExprProgram& p, char** registers, int64_t n, const Load& load_one) {
  for (int64_t i = 0; i < p.length; i++) {
    const ProgramInstr& in = p.code[i];
    if (in.kind == kInputInstr)
      load_one(in, registers[i]);
    else if (in.kind == kConstantInstr)
      fill(in, n, registers[i]);
    else
      in.apply(registers[in.arg[0]], registers[in.arg[1]], registers[in.arg[2]], registers[i], n);
  }
}

}  // namespace

void interpret_row(void* const* operand, const int64_t* offset, const EwiseParams& p, int64_t start, int64_t n,
                   const ExprProgram* program, void* scratch) {
  char* registers[kMaxProgramLength];
  for (int64_t i = 0; i < program->length; i++) registers[i] = static_cast<char*>(scratch) + i * kInterpreterChunk * 8;
  const int64_t last = p.rank - 1;
  for (int64_t done = 0; done < n; done += kInterpreterChunk) {
    const int64_t count = n - done < kInterpreterChunk ? n - done : kInterpreterChunk, at = start + done;
    run_program(*program, registers, count, [&](const ProgramInstr& in, void* out) {
      const int64_t step = p.strides[in.input][last];
      load_input(in, operand[in.input], offset[in.input] + at * step, step, count, out);
    });
    for (int64_t r = 0; r < program->result_count; r++) {
      const int64_t o = p.inputs + r, step = p.strides[o][last], reg = program->results[r];
      store_result(program->result_types[r], program->code[reg].bytes, registers[reg], step, count, operand[o],
                   offset[o] + at * step);
    }
  }
}

namespace {

// A tile of sums, each of 4 bytes.
struct Tile {
  const char* at;
  int64_t rows, columns, stride;  // bytes between rows
};
// Room for the registers of a tile, or of a part of it.
constexpr int64_t kTileRegisters = 32 << 10;
static_assert(kTileRegisters / (kMaxProgramLength * 8) >= 2 * kLanes);

// Where an epilogue's operands are, and the place of its tile in the result.
struct TilePlace {
  void* const* extra;
  const EpilogueOperand* strides;
  int64_t row, col;
};

INGOT_INLINE void load_rows(const ProgramInstr& in, const TilePlace& place, const Tile& tile, char* out) {
  const EpilogueOperand& s = place.strides[in.input - 1];
  const void* base = place.extra[in.input - 1];
  const int64_t offset = place.row * s.row_stride + place.col * s.col_stride;
  if (s.col_stride == 1 && in.bytes == 4 && in.stored != kF16 && in.stored != kBF16) {
    const auto* from = static_cast<const uint32_t*>(base) + offset;
    auto* to = reinterpret_cast<uint32_t*>(out);
    for (int64_t i = 0; i < tile.rows; i++) copy_row(from + i * s.row_stride, tile.columns, to + i * tile.columns);
    return;
  }
  for (int64_t i = 0; i < tile.rows; i++)
    load_input(in, base, offset + i * s.row_stride, s.col_stride, tile.columns, out + i * tile.columns * in.bytes);
}

// Applies an epilogue to a tile whose registers fit; gives the values of the result, row after row.
INGOT_INLINE const char* run_epilogue(const Tile& tile, const TilePlace& place, const ExprProgram& program,
                                      char* memory) {
  const int64_t n = tile.rows * tile.columns;
  // The last vector of a register may be written beyond its last element.
  const int64_t stride = (n + kLanes) * 8;
  char* registers[kMaxProgramLength];
  for (int64_t i = 0; i < program.length; i++) registers[i] = memory + i * stride;
  run_program(program, registers, n, [&](const ProgramInstr& in, char*& out) {
    if (in.input > 0)
      load_rows(in, place, tile, out);
    else if (tile.rows == 1 || tile.stride == tile.columns * 4)
      out = const_cast<char*>(tile.at);  // instructions write only to their own registers
    else
      for (int64_t i = 0; i < tile.rows; i++)
        copy_row(reinterpret_cast<const uint32_t*>(tile.at + i * tile.stride), tile.columns,
                 reinterpret_cast<uint32_t*>(out) + i * tile.columns);
  });
  return registers[program.results[0]];
}

// The same for any tile: in parts, if need be. done(row, column, columns, values) takes each row of each part; row and
// column are those of the tile.
template <class Done>
INGOT_INLINE void finish_parts(const Tile& tile, const TilePlace& place, const ExprProgram& program, const Done& done) {
  alignas(64) char memory[kTileRegisters];
  const int32_t bytes = program.code[program.results[0]].bytes;
  const auto finish_part = [&](int64_t r, int64_t c, int64_t rows, int64_t columns) INGOT_INLINED {
    const Tile part{tile.at + r * tile.stride + c * 4, rows, columns, tile.stride};
    const char* values =
        run_epilogue(part, {place.extra, place.strides, place.row + r, place.col + c}, program, memory);
    for (int64_t i = 0; i < rows; i++) done(r + i, c, columns, values + i * columns * bytes);
  };
  if (program.length * (tile.rows * tile.columns + kLanes) * 8 <= kTileRegisters)
    return finish_part(0, 0, tile.rows, tile.columns);
  const int64_t room = kTileRegisters / (program.length * 8) - kLanes;
  for (int64_t r = 0; r < tile.rows; r++)
    for (int64_t c = 0; c < tile.columns; c += room) finish_part(r, c, 1, min_of(room, tile.columns - c));
}

}  // namespace

void interpret_tile(float* tile, int64_t rows, int64_t columns, int64_t stride, void* const* extra,
                    const EpilogueOperand* strides, int64_t row, int64_t col, const ExprProgram* program) {
  if (!program) return;  // nothing is fused
  const Tile sums{reinterpret_cast<const char*>(tile), rows, columns, stride * int64_t(sizeof(float))};
  finish_parts(sums, {extra, strides, row, col}, *program, [&](int64_t r, int64_t c, int64_t n, const char* values) {
    copy_row(reinterpret_cast<const float*>(values), n, tile + r * stride + c);
  });
}

void interpret_sums(const int32_t* sums, int64_t n, void* out, int64_t at, void* const* extra,
                    const EpilogueOperand* strides, int64_t row, int64_t col, const ExprProgram* program) {
  if (!program) return copy_row(sums, n, static_cast<int32_t*>(out) + at);
  const Tile tile{reinterpret_cast<const char*>(sums), 1, n, 0};
  const int32_t bytes = program->code[program->results[0]].bytes;
  finish_parts(tile, {extra, strides, row, col}, *program, [&](int64_t, int64_t c, int64_t count, const char* values) {
    store_result(program->result_types[0], bytes, values, 1, count, out, at + c);
  });
}

extern "C" VF ingot_hook_epilogue(VF acc, void* const* extra, const EpilogueOperand* strides, int64_t row, int64_t col,
                                  int64_t lanes, const ExprProgram* program) {
  float sums[kLanes];
  store(sums, acc);
  interpret_tile(sums, 1, lanes, kLanes, extra, strides, row, col, program);
  return load(sums);
}

extern "C" void ingot_hook_store(VI acc, void* out, int64_t at, void* const* extra, const EpilogueOperand* strides,
                                 int64_t row, int64_t col, int64_t lanes, const ExprProgram* program) {
  int32_t sums[kLanes];
  store(sums, acc);
  interpret_sums(sums, lanes, out, at, extra, strides, row, col, program);
}

}  // namespace ingot::kernel
