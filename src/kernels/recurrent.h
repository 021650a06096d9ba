// RNN, GRU and LSTM over all time steps, the product X W^T done before. Gates of one time step, with x = the row of
// X W^T, h = the last state, everything element-wise but R h:
//   RNN   h' = f(x + R h + b)
//   GRU   z = f(x_z + R_z h + b_z),  r = f(x_r + R_r h + b_r),
//         n = g(x_n + R_n (r h) + b_n),  or  g(x_n + wb_n + r (R_n h + rb_n))  when linear_before_reset
//         h' = (1 - z) n + z h
//   LSTM  i = f(x_i + R_i h + p_i c + b_i),  f = f(... + p_f c),  n = g(...),  c' = f c + i n,
//         o = f(... + p_o c'),  h' = o h(c')                        with input_forget:  f = 1 - i
// Rows of W, R and b are in ONNX's order: z r h; i o f c. The inputs of gates (not c') are clipped to
// [-clip, clip].
//
// Operands: xw [dirs, rows, gates * hidden], R [dirs, gates * hidden, hidden], B [dirs, 2 * gates * hidden], lengths
// [batch] (i32), h0, c0, P [dirs, 3 * hidden], Y, Y_h, Y_c; all but xw and R may be null. Past the end of a sequence
// Y is 0.
//
// A unit is a tile of members of the batch (recurrent_tiles) in one direction, through all time steps. Neighbouring
// units of a call go through them together, up to kRecurrentMembers members at a time, so that what is read of R serves
// them all. A time step is
//   gates[member][:] = R h[member]      register tiles of kernels/microkernel.h over panels of R
//   h, c, Y                             one pass over the gates of each member
//
// R is packed (f32 only) where it is constant, or where there are enough time steps. Of each direction the rows of R
// that are multiplied by the same vector are the columns of one matrix (kernels/pack.h), in panels of p.panel columns:
//   RNN   [hidden][hidden]
//   LSTM  [hidden][4 * hidden]                         columns: i o f c
//   GRU   [hidden][2 * hidden], [hidden][hidden]       columns: z r, and n, which may be multiplied by r h
// ingot_recurrent_pack: operands R, packed; units are panels.
#pragma once
#include <cstdint>

#include "kernels/abi.h"
#include "kernels/pack.h"

namespace ingot {

enum RecurrentKind : int64_t { kRnn = 1, kGru = 3, kLstm = 4 };  // the number of gates

enum RecurrentActivation : int64_t {
  kActRelu,
  kActTanh,
  kActSigmoid,
  kActAffine,
  kActLeakyRelu,
  kActThresholdedRelu,
  kActScaledTanh,
  kActHardSigmoid,
  kActElu,
  kActSoftsign,
  kActSoftplus,
};

struct RecurrentFunction {
  int64_t activation;
  double alpha, beta;
};

struct RecurrentParams {
  int64_t kind, dtype;  // dtype: F32 or F64
  int64_t panel;        // columns of a panel of R; 0: R is not packed
  int64_t usual;        // sigmoid for gates, tanh for the others, no clip
  int64_t hidden, steps, batch;
  int64_t reverse;  // the first direction runs backward
  int64_t linear_before_reset, input_forget;
  double clip;                      // infinity: none
  int64_t x_step, x_member;         // rows of xw between time steps, between members of the batch
  int64_t y_step, y_member, y_dir;  // strides of Y
  int64_t h_member, h_dir;          // strides of h0, c0, Y_h, Y_c
  RecurrentFunction function[2][3];
};

inline constexpr int64_t kRecurrentMembers = 32, kRecurrentUnpackedRows = 4;

// Matrices of a direction, each multiplied by one vector.
INGOT_INLINE int64_t recurrent_matrices(int64_t kind) { return kind == kGru ? 2 : 1; }
INGOT_INLINE int64_t recurrent_columns(int64_t kind, int64_t hidden, int64_t matrix) {
  return (kind != kGru ? kind : matrix == 0 ? 2 : 1) * hidden;
}
INGOT_INLINE int64_t recurrent_panel(int64_t lanes, int64_t kind, int64_t hidden) {
  return kernel::best_panel(lanes, recurrent_columns(kind, hidden, recurrent_matrices(kind) - 1));
}
// Panels and floats of a direction of packed R.
INGOT_INLINE int64_t recurrent_panels(int64_t kind, int64_t hidden, int64_t panel) {
  int64_t panels = 0;
  for (int64_t m = 0; m < recurrent_matrices(kind); m++)
    panels += kernel::div_up(recurrent_columns(kind, hidden, m), panel);
  return panels;
}
INGOT_INLINE int64_t recurrent_packed_floats(int64_t kind, int64_t hidden, int64_t panel) {
  return recurrent_panels(kind, hidden, panel) * panel * hidden;
}
// Panel `i` of a direction of R [gates * hidden][hidden].
INGOT_INLINE void recurrent_pack_panel(float* packed, const float* r, int64_t kind, int64_t hidden, int64_t panel,
                                       int64_t i) {
  const int64_t first = kernel::div_up(recurrent_columns(kind, hidden, 0), panel), matrix = i < first ? 0 : 1;
  const int64_t row = matrix == 0 ? 0 : recurrent_columns(kind, hidden, 0);
  kernel::pack_b(packed + matrix * first * panel * hidden, r + row * hidden, hidden,
                 recurrent_columns(kind, hidden, matrix), 1, hidden, panel, i - matrix * first, i - matrix * first + 1);
}

// Tiles of nearly equal height, whichever number of threads there is: results do not depend on it.
INGOT_INLINE int64_t recurrent_tiles(const RecurrentParams& p, int64_t lanes) {
  const int64_t rows = p.panel ? kernel::tile_rows(lanes, p.panel) : kRecurrentUnpackedRows;
  return kernel::max_of(1, kernel::div_up(p.batch, rows));
}

// Elements: the sum of the biases; of each member gates, h, c, r h.
INGOT_INLINE int64_t recurrent_scratch(const RecurrentParams& p) {
  return p.kind * p.hidden + kernel::min_of(p.batch, kRecurrentMembers) * p.hidden * (p.kind + 3);
}

INGOT_KERNEL(ingot_recurrent);
INGOT_KERNEL(ingot_recurrent_pack);

}  // namespace ingot
