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
// Y is 0. A unit is kRecurrentBlock members of the batch in one direction. Scratch: recurrent_scratch elements.
//
// R may be packed (f32 only), which pays after a few time steps: each gate by itself in panels (kernels/pack.h) of
// kRecurrentPanel rows of R, which are the columns of the product h R^T:
//
//   [dir][gate][panel][hidden k][16 rows of R]
//
// ingot_recurrent_pack: operands R, packed; units are panels.
#pragma once
#include <cstdint>

#include "kernels/abi.h"

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

inline constexpr int64_t kRecurrentBlock = 4, kRecurrentPanel = 16;

struct RecurrentParams {
  int64_t kind, dtype;  // dtype: F32 or F64
  int64_t packed;       // R is
  int64_t hidden, steps, batch;
  int64_t reverse;  // the first direction runs backward
  int64_t linear_before_reset, input_forget;
  double clip;                      // infinity: none
  int64_t x_step, x_member;         // rows of xw between time steps, between members of the batch
  int64_t y_step, y_member, y_dir;  // strides of Y
  int64_t h_member, h_dir;          // strides of h0, c0, Y_h, Y_c
  RecurrentFunction function[2][3];
};

inline int64_t recurrent_panels(const RecurrentParams& p) {
  return p.kind * ((p.hidden + kRecurrentPanel - 1) / kRecurrentPanel);
}

// Of one member: gates, h, c, r h.
inline int64_t recurrent_scratch(const RecurrentParams& p) { return kRecurrentBlock * p.hidden * (p.kind + 3); }

INGOT_KERNEL(ingot_recurrent);
INGOT_KERNEL(ingot_recurrent_pack);

}  // namespace ingot
