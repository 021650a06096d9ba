#include "kernels/recurrent.h"

#include "base/dtype.h"
#include "kernels/ewise_rows.h"
#include "kernels/pack.h"

namespace ingot::kernel {
namespace {

constexpr int kRows = 4;

template <class T>
INGOT_INLINE T sum_of(Vec<T> v) {
  T sum = 0;
  for (int i = 0; i < kLanes; i++) sum += v[i];
  return sum;
}

// out[m][j] += sum_k r[j][k] v[m][k]  for rows [j, j + Rows) and Members vectors, `hidden` apart.
template <class T, int Rows, int Members>
INGOT_INLINE void add_tile(const T* r, const T* v, int64_t hidden, T* out, int64_t out_stride) {
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
  INGOT_UNROLL for (int j = 0; j < Rows; j++) INGOT_UNROLL for (int m = 0; m < Members; m++) out[m * out_stride + j] +=
      sum_of<T>(acc[j][m]);
}

template <class T, int Members>
__attribute__((noinline)) void add_rows(const T* r, const T* v, int64_t hidden, int64_t rows, T* out,
                                        int64_t out_stride) {
  int64_t j = 0;
  for (; j + kRows <= rows; j += kRows) add_tile<T, kRows, Members>(r + j * hidden, v, hidden, out + j, out_stride);
  for (; j < rows; j++) add_tile<T, 1, Members>(r + j * hidden, v, hidden, out + j, out_stride);
}

// out[m][j] += R v[m] for all members of a block.
template <class T>
void add_product(const T* r, const T* v, int64_t hidden, int64_t rows, int64_t members, T* out, int64_t out_stride) {
  for (; members >= 2; members -= 2, v += 2 * hidden, out += 2 * out_stride)
    add_rows<T, 2>(r, v, hidden, rows, out, out_stride);
  if (members) add_rows<T, 1>(r, v, hidden, rows, out, out_stride);
}

constexpr int kVectors = kRecurrentPanel / kLanes;

// out[m][column] += sum_k v[m][k] panel[k][column]  for Panels neighbouring panels, of which `columns` columns count.
template <int Panels, int Members>
INGOT_INLINE void add_panels(const float* panel, const float* v, int64_t hidden, int64_t columns, float* out,
                             int64_t out_stride) {
  VF acc[Members][Panels * kVectors];
  for (int m = 0; m < Members; m++) INGOT_UNROLL for (int j = 0; j < Panels * kVectors; j++) acc[m][j] = VF(0.f);
  for (int64_t k = 0; k < hidden; k++) {
    VF x[Members];
    INGOT_UNROLL for (int m = 0; m < Members; m++) x[m] = VF(v[m * hidden + k]);
    INGOT_UNROLL for (int j = 0; j < Panels * kVectors; j++) {
      const int64_t start = j / kVectors * hidden * kRecurrentPanel + j % kVectors * kLanes;
      const VF w = load(panel + start + k * kRecurrentPanel);
      INGOT_UNROLL for (int m = 0; m < Members; m++) acc[m][j] += x[m] * w;
    }
  }
  for (int m = 0; m < Members; m++) INGOT_UNROLL for (int j = 0; j < Panels * kVectors; j++) {
      float* to = out + m * out_stride + j * kLanes;
      const int64_t left = columns - j * kLanes;
      if (left > 0) store_partial(to, load_partial(to, left) + acc[m][j], left);
    }
}

// One gate.
template <int Panels, int Members>
__attribute__((noinline)) void add_gate(const float* packed, const float* v, int64_t hidden, float* out,
                                        int64_t out_stride) {
  int64_t c = 0;
  for (; c + (Panels - 1) * kRecurrentPanel < hidden; c += Panels * kRecurrentPanel)
    add_panels<Panels, Members>(packed + c * hidden, v, hidden, hidden - c, out + c, out_stride);
  for (; c < hidden; c += kRecurrentPanel)
    add_panels<1, Members>(packed + c * hidden, v, hidden, hidden - c, out + c, out_stride);
}

void add_packed(const float* packed, const float* v, int64_t hidden, int64_t members, float* out, int64_t out_stride) {
  if (members == 4)
    add_gate<1, 4>(packed, v, hidden, out, out_stride);
  else if (members == 3)
    add_gate<1, 3>(packed, v, hidden, out, out_stride);
  else if (members == 2)
    add_gate<2, 2>(packed, v, hidden, out, out_stride);
  else
    add_gate<4, 1>(packed, v, hidden, out, out_stride);
}

// x = f(clip(x)) over n elements; f is inlined once for each activation.
template <class T, class F>
INGOT_INLINE void map(T* x, int64_t n, T clip, F f) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec<T> v = load_partial(x + i, n - i);
    store_partial(x + i, f(at_most<T>(at_least<T>(v, Vec<T>(-clip)), Vec<T>(clip))), n - i);
  }
}

template <class T>
__attribute__((noinline)) void activate(const RecurrentFunction& f, T clip, T* x, int64_t n) {
  using V = Vec<T>;
  const V a = V(T(f.alpha)), b = V(T(f.beta));
  switch (f.activation) {
    case kActRelu:
      return map(x, n, clip, [](V v) { return op_relu::apply<T>(v); });
    case kActTanh:
      return map(x, n, clip, [](V v) { return op_tanh::apply<T>(v); });
    case kActSigmoid:
      return map(x, n, clip, [](V v) { return op_sigmoid::apply<T>(v); });
    case kActAffine:
      return map(x, n, clip, [=](V v) { return a * v + b; });
    case kActLeakyRelu:
      return map(x, n, clip, [=](V v) { return op_leaky_relu::apply<T>(v, a); });
    case kActThresholdedRelu:
      return map(x, n, clip, [=](V v) { return v >= a ? v : V(T(0)); });
    case kActScaledTanh:
      return map(x, n, clip, [=](V v) { return a * op_tanh::apply<T>(b * v); });
    case kActHardSigmoid:
      return map(x, n, clip, [=](V v) { return op_hard_sigmoid::apply<T>(v, a, b); });
    case kActElu:
      return map(x, n, clip, [=](V v) { return op_elu::apply<T>(v, a); });
    case kActSoftsign:
      return map(x, n, clip, [](V v) { return op_softsign::apply<T>(v); });
    default:
      return map(x, n, clip, [](V v) { return op_softplus::apply<T>(v); });
  }
}

// What one direction reads, for the members of one block.
template <class T>
struct Cell {
  const RecurrentParams& p;
  const RecurrentFunction* function;
  const T *r, *b, *peephole;  // b and peephole may be null
  int64_t members;
  T *gates, *h, *c, *reset;  // [member][...]

  int64_t width() const { return p.kind * p.hidden; }
  T clip() const { return T(p.clip); }
  T* gate(int64_t m, int64_t g) const { return gates + m * width() + g * p.hidden; }
  // out[m] += R v[m] for `count` gates from the first on.
  void add(int64_t first, int64_t count, const T* v, T* out, int64_t out_stride) const {
    const int64_t n = p.hidden;
    if constexpr (sizeof(T) == sizeof(float))
      if (p.packed) {
        const int64_t size = div_up(n, kRecurrentPanel) * kRecurrentPanel * n;
        for (int64_t g = 0; g < count; g++) add_packed(r + (first + g) * size, v, n, members, out + g * n, out_stride);
        return;
      }
    add_product(r + first * n * n, v, n, count * n, members, out, out_stride);
  }
};

template <class T>
void step_rnn(const Cell<T>& s, const bool* active) {
  const int64_t n = s.p.hidden;
  s.add(0, 1, s.h, s.gates, n);
  for (int64_t m = 0; m < s.members; m++) {
    if (!active[m]) continue;
    activate(s.function[0], s.clip(), s.gate(m, 0), n);
    for (int64_t i = 0; i < n; i++) s.h[m * n + i] = s.gate(m, 0)[i];
  }
}

template <class T>
void step_gru(const Cell<T>& s, const bool* active) {
  const int64_t n = s.p.hidden;
  const T* wb = s.b ? s.b + 2 * n : nullptr;  // the bias of n: of W, and 3 n later of R
  s.add(0, 2, s.h, s.gates, s.width());
  for (int64_t m = 0; m < s.members; m++) activate(s.function[0], s.clip(), s.gate(m, 0), 2 * n);
  const bool before = s.p.linear_before_reset;
  for (int64_t m = 0; m < s.members; m++)
    for (int64_t i = 0; i < n; i++)
      s.reset[m * n + i] = before ? (wb ? wb[3 * n + i] : T(0)) : s.gate(m, 1)[i] * s.h[m * n + i];
  if (before)
    s.add(2, 1, s.h, s.reset, n);
  else
    s.add(2, 1, s.reset, s.gate(0, 2), s.width());
  for (int64_t m = 0; m < s.members; m++) {
    if (!active[m]) continue;
    const T* z = s.gate(m, 0);
    T *out = s.gate(m, 2), *h = s.h + m * n;
    if (before)
      for (int64_t i = 0; i < n; i++) out[i] += s.gate(m, 1)[i] * s.reset[m * n + i];
    activate(s.function[1], s.clip(), out, n);
    for (int64_t i = 0; i < n; i++) h[i] = (T(1) - z[i]) * out[i] + z[i] * h[i];
  }
}

template <class T>
void add_peephole(const Cell<T>& s, T* gate, const T* c, int64_t which) {
  if (s.peephole)
    for (int64_t i = 0; i < s.p.hidden; i++) gate[i] += s.peephole[which * s.p.hidden + i] * c[i];
}

template <class T>
void step_lstm(const Cell<T>& s, const bool* active) {
  const int64_t n = s.p.hidden;
  s.add(0, 4, s.h, s.gates, s.width());
  for (int64_t m = 0; m < s.members; m++) {
    if (!active[m]) continue;
    T *in = s.gate(m, 0), *out = s.gate(m, 1), *forget = s.gate(m, 2), *cell = s.gate(m, 3);
    T *c = s.c + m * n, *h = s.h + m * n;
    add_peephole(s, in, c, 0);
    activate(s.function[0], s.clip(), in, n);
    if (s.p.input_forget) {
      for (int64_t i = 0; i < n; i++) forget[i] = T(1) - in[i];
    } else {
      add_peephole(s, forget, c, 2);
      activate(s.function[0], s.clip(), forget, n);
    }
    activate(s.function[1], s.clip(), cell, n);
    for (int64_t i = 0; i < n; i++) c[i] = forget[i] * c[i] + in[i] * cell[i];
    add_peephole(s, out, c, 1);
    activate(s.function[0], s.clip(), out, n);
    for (int64_t i = 0; i < n; i++) h[i] = c[i];
    activate(s.function[2], T(__builtin_inf()), h, n);
    for (int64_t i = 0; i < n; i++) h[i] *= out[i];
  }
}

// The gates of a member before R h: its row of X W^T and the biases.
template <class T>
void start_gates(const Cell<T>& s, int64_t m, const T* x) {
  const int64_t n = s.p.hidden, width = s.width();
  T* gates = s.gate(m, 0);
  for (int64_t i = 0; i < width; i++) gates[i] = x[i] + (s.b ? s.b[i] : T(0));
  if (!s.b) return;
  const int64_t end = s.p.kind == kGru && s.p.linear_before_reset ? 2 * n : width;
  for (int64_t i = 0; i < end; i++) gates[i] += s.b[width + i];
}

template <class T>
KernelStatus run_block(const KernelCall* call, const RecurrentParams& p, int64_t dir, int64_t first) {
  const auto operand = [&](int i) { return static_cast<T*>(call->operand[i]); };
  const int64_t n = p.hidden, width = p.kind * n;
  const bool backward = dir == 1 || p.reverse;
  const int64_t r_size = p.packed ? recurrent_panels(p) * kRecurrentPanel * n : width * n;
  Cell<T> s{p, p.function[dir], operand(1) + dir * r_size, nullptr, nullptr, 0, nullptr, nullptr, nullptr, nullptr};
  if (operand(2)) s.b = operand(2) + dir * 2 * width;
  if (operand(6)) s.peephole = operand(6) + dir * 3 * n;
  s.members = p.batch - first < kRecurrentBlock ? p.batch - first : kRecurrentBlock;
  s.gates = static_cast<T*>(call->scratch);
  s.h = s.gates + kRecurrentBlock * width;
  s.c = s.h + kRecurrentBlock * n;
  s.reset = s.c + kRecurrentBlock * n;

  const auto* lengths = static_cast<const int32_t*>(call->operand[3]);
  int64_t length[kRecurrentBlock];
  for (int64_t m = 0; m < s.members; m++) {
    length[m] = lengths ? lengths[first + m] : p.steps;
    if (length[m] < 0 || length[m] > p.steps) return kBadValue;
    const int64_t at = (first + m) * p.h_member + dir * p.h_dir;
    for (int64_t i = 0; i < n; i++) {
      s.h[m * n + i] = operand(4) ? operand(4)[at + i] : T(0);
      s.c[m * n + i] = operand(5) ? operand(5)[at + i] : T(0);
    }
  }
  for (int64_t i = 0; i < kRecurrentBlock * width; i++) s.gates[i] = T(0);

  const T* xw = operand(0) + dir * p.steps * p.batch * width;
  for (int64_t step = 0; step < p.steps; step++) {
    bool active[kRecurrentBlock] = {};
    int64_t time[kRecurrentBlock] = {};
    for (int64_t m = 0; m < s.members; m++) {
      active[m] = step < length[m];
      time[m] = active[m] && backward ? length[m] - 1 - step : step;
      if (active[m]) start_gates(s, m, xw + (time[m] * p.x_step + (first + m) * p.x_member) * width);
    }
    if (p.kind == kRnn)
      step_rnn(s, active);
    else if (p.kind == kGru)
      step_gru(s, active);
    else
      step_lstm(s, active);
    if (!operand(7)) continue;
    for (int64_t m = 0; m < s.members; m++) {
      T* y = operand(7) + time[m] * p.y_step + (first + m) * p.y_member + dir * p.y_dir;
      for (int64_t i = 0; i < n; i++) y[i] = active[m] ? s.h[m * n + i] : T(0);
    }
  }
  for (int64_t m = 0; m < s.members; m++) {
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
  const int64_t n = p.hidden, panels = div_up(n, kRecurrentPanel);
  for (int64_t u = call->begin; u < call->end; u++) {
    const int64_t gate = u / panels, column = u % panels * kRecurrentPanel;
    pack_panel<kRecurrentPanel>(static_cast<float*>(call->operand[1]) + u * kRecurrentPanel * n,
                                static_cast<const float*>(call->operand[0]) + (gate * n + column) * n, n, n - column, 1,
                                n);
  }
  return kOk;
}

extern "C" KernelStatus ingot_recurrent(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const RecurrentParams*>(call->param);
  const int64_t blocks = (p.batch + kRecurrentBlock - 1) / kRecurrentBlock;
  for (int64_t u = call->begin; u < call->end; u++) {
    const int64_t dir = u / blocks, first = u % blocks * kRecurrentBlock;
    const KernelStatus status = static_cast<DType>(p.dtype) == DType::F64 ? run_block<double>(call, p, dir, first)
                                                                          : run_block<float>(call, p, dir, first);
    if (status != kOk) return status;
  }
  return kOk;
}

}  // namespace ingot::kernel
