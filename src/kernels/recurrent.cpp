#include "kernels/recurrent.h"

#include "base/dtype.h"
#include "kernels/ewise_rows.h"
#include "kernels/microkernel.h"

namespace ingot::kernel {
namespace {

constexpr int kRows = 4;  // of R at a time, where it is not packed

template <class T>
INGOT_INLINE T sum_of(Vec<T> v) {
  T sum = 0;
  for (int i = 0; i < kLanes; i++) sum += v[i];
  return sum;
}

// out[m][j] = sum_k r[j][k] v[m][k]  for rows [j, j + Rows) and Members vectors, `hidden` apart.
template <class T, int Rows, int Members>
INGOT_INLINE void dot_tile(const T* r, const T* v, int64_t hidden, T* out, int64_t out_stride) {
  Vec<T> acc[Rows][Members];
  for (int j = 0; j < Rows; j++)
    for (int m = 0; m < Members; m++) acc[j][m] = Vec<T>(T(0));
  int64_t k = 0;
  for (; k + kLanes <= hidden; k += kLanes) {
    Vec<T> x[Members];
    INGOT_UNROLL for (int m = 0; m < Members; m++) x[m] = load(v + m * hidden + k);
    INGOT_UNROLL for (int j = 0; j < Rows; j++) {
      const Vec<T> w = load(r + j * hidden + k);
      INGOT_UNROLL for (int m = 0; m < Members; m++) acc[j][m] += w * x[m];
    }
  }
  if (k < hidden)
    for (int j = 0; j < Rows; j++) {
      const Vec<T> w = load_partial(r + j * hidden + k, hidden - k);
      for (int m = 0; m < Members; m++) acc[j][m] += w * load_partial(v + m * hidden + k, hidden - k);
    }
  INGOT_UNROLL for (int j = 0; j < Rows; j++) INGOT_UNROLL for (int m = 0; m < Members; m++) out[m * out_stride + j] =
      sum_of<T>(acc[j][m]);
}

template <class T, int Members>
__attribute__((noinline)) void dot_rows(const T* r, const T* v, int64_t hidden, int64_t rows, T* out,
                                        int64_t out_stride) {
  int64_t j = 0;
  for (; j + kRows <= rows; j += kRows) dot_tile<T, kRows, Members>(r + j * hidden, v, hidden, out + j, out_stride);
  for (; j < rows; j++) dot_tile<T, 1, Members>(r + j * hidden, v, hidden, out + j, out_stride);
}

// out[m][j] = R v[m] for all members.
template <class T>
void multiply_rows(const T* r, const T* v, int64_t hidden, int64_t rows, int64_t members, T* out, int64_t out_stride) {
  for (; members >= 2; members -= 2, v += 2 * hidden, out += 2 * out_stride)
    dot_rows<T, 2>(r, v, hidden, rows, out, out_stride);
  if (members) dot_rows<T, 1>(r, v, hidden, rows, out, out_stride);
}

// out[m][column] = sum_k v[m][k] packed[k][column], for the members of the tiles [first, last); v and out begin with
// the first of them.
struct Tiles {
  Tiling tiling;
  int64_t first, last;
  int64_t start(int64_t tile) const { return tile_start(tiling, tile) - tile_start(tiling, first); }
  int64_t members() const { return start(last); }
};

template <int MR, int NR>
INGOT_LATE void multiply_tile(const float* panel, const float* v, int64_t hidden, int64_t columns, float* out,
                              int64_t out_stride, Prefetch prefetch) {
  constexpr int NV = NR / kLanes;
  VF acc[MR][NV];
  clear(acc);
  const float* rows[MR];
  INGOT_UNROLL for (int i = 0; i < MR; i++) rows[i] = v + i * hidden;
  accumulate(acc, rows, kUnroll, panel, NR, hidden, prefetch);
  INGOT_UNROLL for (int i = 0; i < MR; i++) INGOT_UNROLL for (int j = 0; j < NV; j++) {
    const int64_t left = columns - j * kLanes;
    if (left > 0) store_partial(out + i * out_stride + j * kLanes, acc[i][j], left);
  }
}

template <int NR>
INGOT_INLINE void multiply_panels(const float* packed, const float* v, int64_t hidden, int64_t columns,
                                  const Tiles& tiles, float* out, int64_t out_stride) {
  // One tile reads a panel once: it would fetch as much as it reads.
  const int64_t count = tiles.last - tiles.first, lines = count > 1 ? prefetch_lines(NR * sizeof(float), count) : 0;
  for (int64_t c = 0; c < columns; c += NR, packed += NR * hidden) {
    const bool more = c + NR < columns;
    for_tiles<kTileRows<NR>>(tiles.tiling, tiles.first, tiles.last, [&](auto height, int64_t tile) INGOT_INLINED {
      const int64_t row = tiles.start(tile);
      const int64_t ahead = (tile - tiles.first) * div_up(hidden, kUnroll) * lines * kCacheLine;
      multiply_tile<decltype(height)::value, NR>(
          packed, v + row * hidden, hidden, columns - c, out + row * out_stride + c, out_stride,
          {reinterpret_cast<const char*>(packed + NR * hidden) + ahead, more ? lines : 0});
    });
  }
}

// The functions of a direction. The usual ones are known when this is compiled.
template <class T>
__attribute__((noinline)) Vec<T> activate(const RecurrentFunction& f, T clip, Vec<T> x) {
  using V = Vec<T>;
  const V a = V(T(f.alpha)), b = V(T(f.beta)), v = at_most<T>(at_least<T>(x, V(-clip)), V(clip));
  switch (f.activation) {
    case kActRelu:
      return op_relu::apply<T>(v);
    case kActTanh:
      return op_tanh::apply<T>(v);
    case kActSigmoid:
      return op_sigmoid::apply<T>(v);
    case kActAffine:
      return a * v + b;
    case kActLeakyRelu:
      return op_leaky_relu::apply<T>(v, a);
    case kActThresholdedRelu:
      return v >= a ? v : V(T(0));
    case kActScaledTanh:
      return a * op_tanh::apply<T>(b * v);
    case kActHardSigmoid:
      return op_hard_sigmoid::apply<T>(v, a, b);
    case kActElu:
      return op_elu::apply<T>(v, a);
    case kActSoftsign:
      return op_softsign::apply<T>(v);
    default:
      return op_softplus::apply<T>(v);
  }
}

template <class T, bool Usual>
struct Functions {
  const RecurrentFunction* f;
  T clip;
  INGOT_INLINED Vec<T> gate(Vec<T> v) const { return Usual ? op_sigmoid::apply<T>(v) : activate<T>(f[0], clip, v); }
  INGOT_INLINED Vec<T> other(Vec<T> v) const { return Usual ? op_tanh::apply<T>(v) : activate<T>(f[1], clip, v); }
  INGOT_INLINED Vec<T> result(Vec<T> v) const {
    return Usual ? op_tanh::apply<T>(v) : activate<T>(f[2], T(__builtin_inf()), v);
  }
  // The only function of an RNN.
  INGOT_INLINED Vec<T> only(Vec<T> v) const { return Usual ? op_tanh::apply<T>(v) : activate<T>(f[0], clip, v); }
};

// What one direction reads, for the members of one block.
template <class T>
struct Cell {
  const RecurrentParams& p;
  const RecurrentFunction* function;
  const T *r, *rb, *peephole;  // rb: the bias of R, for linear_before_reset; it and peephole may be null
  Tiles tiles;
  T *bias, *gates, *h, *c, *reset;  // bias [gates * hidden]; the others [member][...]

  int64_t width() const { return p.kind * p.hidden; }
  // The gates of all members from the first of a matrix of R on = that matrix times v.
  void multiply(int64_t matrix, const T* v) const {
    const int64_t n = p.hidden, first = matrix == 0 ? 0 : recurrent_columns(p.kind, n, 0);
    const int64_t columns = recurrent_columns(p.kind, n, matrix);
    if constexpr (sizeof(T) == sizeof(float))
      if (p.panel) {
        const float* packed = r + div_up(first, p.panel) * p.panel * n;
        return with_panel(p.panel, [&](auto panel) INGOT_INLINED {
          multiply_panels<decltype(panel)::value>(packed, v, n, columns, tiles, gates + first, width());
        });
      }
    multiply_rows(r + first * n, v, n, columns, tiles.members(), gates + first, width());
  }
};

// One member in one time step: where its gates, its row of X W^T, its states and its row of Y (or null) are.
template <class T>
struct Member {
  const T *bias, *x;
  T *gates, *h, *c, *reset, *y;
  int64_t n;

  // The input of gate g without R h, and with it.
  INGOT_INLINED Vec<T> input(int64_t g, int64_t i) const {
    return load_partial(x + g * n + i, n - i) + load_partial(bias + g * n + i, n - i);
  }
  INGOT_INLINED Vec<T> sum(int64_t g, int64_t i) const { return input(g, i) + load_partial(gates + g * n + i, n - i); }
  INGOT_INLINED void set_h(int64_t i, Vec<T> v) const {
    store_partial(h + i, v, n - i);
    if (y) store_partial(y + i, v, n - i);
  }
};

template <class T, bool Usual>
void rnn_member(const Functions<T, Usual>& f, const Member<T>& m) {
  for (int64_t i = 0; i < m.n; i += kLanes) m.set_h(i, f.only(m.sum(0, i)));
}

// The gates z and r; r h.
template <class T, bool Usual>
void gru_reset(const Functions<T, Usual>& f, const Member<T>& m) {
  for (int64_t i = 0; i < m.n; i += kLanes) {
    store_partial(m.gates + i, f.gate(m.sum(0, i)), m.n - i);
    store_partial(m.reset + i, f.gate(m.sum(1, i)) * load_partial(m.h + i, m.n - i), m.n - i);
  }
}
template <class T, bool Usual>
void gru_member(const Functions<T, Usual>& f, const Member<T>& m, const Cell<T>& s) {
  const bool before = s.p.linear_before_reset;
  for (int64_t i = 0; i < m.n; i += kLanes) {
    const int64_t left = m.n - i;
    Vec<T> z, n;
    if (before) {
      z = f.gate(m.sum(0, i));
      Vec<T> rn = load_partial(m.gates + 2 * m.n + i, left);
      if (s.rb) rn += load_partial(s.rb + i, left);
      n = f.other(m.input(2, i) + f.gate(m.sum(1, i)) * rn);
    } else {
      z = load_partial(m.gates + i, left);
      n = f.other(m.sum(2, i));
    }
    m.set_h(i, (Vec<T>(T(1)) - z) * n + z * load_partial(m.h + i, left));
  }
}

template <class T, bool Usual>
void lstm_member(const Functions<T, Usual>& f, const Member<T>& m, const Cell<T>& s) {
  auto peep = [&](int64_t which, int64_t i, Vec<T> v, Vec<T> c) INGOT_INLINED {
    return s.peephole ? v + load_partial(s.peephole + which * m.n + i, m.n - i) * c : v;
  };
  for (int64_t i = 0; i < m.n; i += kLanes) {
    const Vec<T> c = load_partial(m.c + i, m.n - i), in = f.gate(peep(0, i, m.sum(0, i), c));
    const Vec<T> forget = s.p.input_forget ? Vec<T>(T(1)) - in : f.gate(peep(2, i, m.sum(2, i), c));
    const Vec<T> next = forget * c + in * f.other(m.sum(3, i));
    store_partial(m.c + i, next, m.n - i);
    m.set_h(i, f.gate(peep(1, i, m.sum(1, i), next)) * f.result(next));
  }
}

// One time step of all members; `member(m)` is null where a sequence has ended.
template <class T, bool Usual, class Members>
INGOT_INLINE void run_step(const Cell<T>& s, const Functions<T, Usual>& f, const Members& members) {
  s.multiply(0, s.h);
  if (s.p.kind == kRnn) return members([&](const Member<T>& m) INGOT_INLINED { rnn_member(f, m); });
  if (s.p.kind == kLstm) return members([&](const Member<T>& m) INGOT_INLINED { lstm_member(f, m, s); });
  if (s.p.linear_before_reset) {
    s.multiply(1, s.h);
  } else {
    members([&](const Member<T>& m) INGOT_INLINED { gru_reset(f, m); });
    s.multiply(1, s.reset);
  }
  members([&](const Member<T>& m) INGOT_INLINED { gru_member(f, m, s); });
}

// What the sequences of a block are in time.
struct Times {
  bool backward;
  int64_t length[kRecurrentMembers];
  bool active(int64_t m, int64_t step) const { return step < length[m]; }
  int64_t at(int64_t m, int64_t step) const { return active(m, step) && backward ? length[m] - 1 - step : step; }
};

template <class T, bool Usual>
void run_steps(const KernelCall* call, const Cell<T>& s, const Times& times, int64_t dir, int64_t first) {
  const RecurrentParams& p = s.p;
  const int64_t n = p.hidden, width = s.width(), count = s.tiles.members();
  const T* xw = static_cast<const T*>(call->operand[0]) + dir * p.steps * p.batch * width;
  T* y = static_cast<T*>(call->operand[7]);
  const Functions<T, Usual> f{s.function, T(p.clip)};
  for (int64_t step = 0; step < p.steps; step++) {
    const auto row = [&](int64_t m) INGOT_INLINED {
      return y ? y + times.at(m, step) * p.y_step + (first + m) * p.y_member + dir * p.y_dir : nullptr;
    };
    run_step<T, Usual>(s, f, [&](auto&& work) INGOT_INLINED {
      for (int64_t m = 0; m < count; m++) {
        if (!times.active(m, step)) continue;
        const T* x = xw + (times.at(m, step) * p.x_step + (first + m) * p.x_member) * width;
        work(Member<T>{s.bias, x, s.gates + m * width, s.h + m * n, s.c + m * n, s.reset + m * n, row(m), n});
      }
    });
    for (int64_t m = 0; m < count && y; m++)
      if (!times.active(m, step))
        for (int64_t i = 0; i < n; i++) row(m)[i] = T(0);
  }
}

// The biases of W and R together; that of R for n alone, where linear_before_reset wants it so.
template <class T>
void add_biases(const Cell<T>& s, const T* b) {
  const int64_t width = s.width(), both = s.rb ? 2 * s.p.hidden : width;
  for (int64_t i = 0; i < width; i++) s.bias[i] = b ? b[i] + (i < both ? b[width + i] : T(0)) : T(0);
}

template <class T>
KernelStatus run_block(const KernelCall* call, const RecurrentParams& p, int64_t dir, const Tiles& tiles) {
  const auto operand = [&](int i) { return static_cast<T*>(call->operand[i]); };
  const int64_t n = p.hidden, width = p.kind * n, count = tiles.members(),
                first = tile_start(tiles.tiling, tiles.first);
  const int64_t r_size = p.panel ? recurrent_packed_floats(p.kind, n, p.panel) : width * n;
  Cell<T> s{p,
            p.function[dir],
            operand(1) + dir * r_size,
            nullptr,
            nullptr,
            tiles,
            static_cast<T*>(call->scratch),
            nullptr,
            nullptr,
            nullptr,
            nullptr};
  const T* b = operand(2) ? operand(2) + dir * 2 * width : nullptr;
  if (b && p.kind == kGru && p.linear_before_reset) s.rb = b + width + 2 * n;
  if (operand(6)) s.peephole = operand(6) + dir * 3 * n;
  s.gates = s.bias + width;
  s.h = s.gates + count * width;
  s.c = s.h + count * n;
  s.reset = s.c + count * n;
  add_biases(s, b);

  const auto* lengths = static_cast<const int32_t*>(call->operand[3]);
  Times times;
  times.backward = dir == 1 || p.reverse;
  for (int64_t m = 0; m < count; m++) {
    times.length[m] = lengths ? lengths[first + m] : p.steps;
    if (times.length[m] < 0 || times.length[m] > p.steps) return kBadValue;
    const int64_t at = (first + m) * p.h_member + dir * p.h_dir;
    for (int64_t i = 0; i < n; i++) {
      s.h[m * n + i] = operand(4) ? operand(4)[at + i] : T(0);
      s.c[m * n + i] = operand(5) ? operand(5)[at + i] : T(0);
      s.reset[m * n + i] = T(0);
    }
  }
  if (p.usual)
    run_steps<T, true>(call, s, times, dir, first);
  else
    run_steps<T, false>(call, s, times, dir, first);
  for (int64_t m = 0; m < count; m++) {
    const int64_t at = (first + m) * p.h_member + dir * p.h_dir;
    for (int64_t i = 0; i < n; i++) {
      if (operand(8)) operand(8)[at + i] = s.h[m * n + i];
      if (operand(9)) operand(9)[at + i] = s.c[m * n + i];
    }
  }
  return kOk;
}

}  // namespace

extern "C" KernelStatus ingot_recurrent_pack(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const RecurrentParams*>(call->param);
  const int64_t panels = recurrent_panels(p.kind, p.hidden, p.panel);
  for (int64_t u = call->begin; u < call->end; u++) {
    const int64_t dir = u / panels;
    recurrent_pack_panel(
        static_cast<float*>(call->operand[1]) + dir * recurrent_packed_floats(p.kind, p.hidden, p.panel),
        static_cast<const float*>(call->operand[0]) + dir * p.kind * p.hidden * p.hidden, p.kind, p.hidden, p.panel,
        u % panels);
  }
  return kOk;
}

extern "C" KernelStatus ingot_recurrent(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const RecurrentParams*>(call->param);
  const int64_t count = recurrent_tiles(p, kLanes);
  const Tiling tiling{count, p.batch / count, p.batch % count};
  for (int64_t u = call->begin; u < call->end;) {
    const int64_t dir = u / count, first = u % count;
    Tiles tiles{tiling, first, first + 1};
    while (tiles.last < count && dir * count + tiles.last < call->end &&
           tile_start(tiling, tiles.last + 1) - tile_start(tiling, first) <= kRecurrentMembers)
      tiles.last++;
    const KernelStatus status = static_cast<DType>(p.dtype) == DType::F64 ? run_block<double>(call, p, dir, tiles)
                                                                          : run_block<float>(call, p, dir, tiles);
    if (status != kOk) return status;
    u = dir * count + tiles.last;
  }
  return kOk;
}

}  // namespace ingot::kernel
