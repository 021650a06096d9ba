#include "kernels/dft.h"

#include "kernels/number.h"

namespace ingot::kernel {
namespace {

// Complex numbers of one buffer: real parts and imaginary parts apart.
struct Line {
  double *re, *im;
};
struct ConstLine {
  const double *re, *im;
};

// One factor: `count` groups p of `f` inputs, m apart, each group `s` numbers wide; w_N = w^s.
//   y[s (f p + k) + q] = w_N^(pk) sum_j x[s (p + m j) + q] w_f^(jk)
struct Stage {
  int64_t n, f, m, s;
  ConstLine w;
};

void stage_2(const Stage& t, Line x, Line y) {
  for (int64_t p = 0; p < t.m; p++) {
    const double wr = t.w.re[p * t.s], wi = t.w.im[p * t.s];
    const int64_t a = t.s * p, b = t.s * (p + t.m), to = t.s * 2 * p;
    for (int64_t q = 0; q < t.s; q++) {
      const double dr = x.re[a + q] - x.re[b + q], di = x.im[a + q] - x.im[b + q];
      y.re[to + q] = x.re[a + q] + x.re[b + q];
      y.im[to + q] = x.im[a + q] + x.im[b + q];
      y.re[to + t.s + q] = dr * wr - di * wi;
      y.im[to + t.s + q] = dr * wi + di * wr;
    }
  }
}

void stage_4(const Stage& t, Line x, Line y) {
  const double sign = t.w.im[t.n / 4] < 0 ? 1 : -1;  // w_4 = -i forward, i backward
  const int64_t s = t.s, hop = s * t.m;
  for (int64_t p = 0; p < t.m; p++) {
    const double *r = t.w.re + p * s, *i = t.w.im + p * s;
    const double w1r = r[0], w1i = i[0], w2r = r[p * s], w2i = i[p * s], w3r = r[2 * p * s], w3i = i[2 * p * s];
    const double *xr = x.re + s * p, *xi = x.im + s * p;
    double *yr = y.re + s * 4 * p, *yi = y.im + s * 4 * p;
    for (int64_t q = 0; q < s; q++) {
      const double ar = xr[q] + xr[q + 2 * hop], ai = xi[q] + xi[q + 2 * hop];
      const double br = xr[q] - xr[q + 2 * hop], bi = xi[q] - xi[q + 2 * hop];
      const double cr = xr[q + hop] + xr[q + 3 * hop], ci = xi[q + hop] + xi[q + 3 * hop];
      const double dr = sign * (xi[q + hop] - xi[q + 3 * hop]), di = sign * (xr[q + 3 * hop] - xr[q + hop]);
      yr[q] = ar + cr;
      yi[q] = ai + ci;
      const double er = br + dr, ei = bi + di, fr = ar - cr, fi = ai - ci, gr = br - dr, gi = bi - di;
      yr[q + s] = er * w1r - ei * w1i;
      yi[q + s] = er * w1i + ei * w1r;
      yr[q + 2 * s] = fr * w2r - fi * w2i;
      yi[q + 2 * s] = fr * w2i + fi * w2r;
      yr[q + 3 * s] = gr * w3r - gi * w3i;
      yi[q + 3 * s] = gr * w3i + gi * w3r;
    }
  }
}

void stage_any(const Stage& t, Line x, Line y) {
  for (int64_t p = 0; p < t.m; p++)
    for (int64_t k = 0; k < t.f; k++) {
      double *yr = y.re + t.s * (t.f * p + k), *yi = y.im + t.s * (t.f * p + k);
      for (int64_t q = 0; q < t.s; q++) yr[q] = yi[q] = 0;
      for (int64_t j = 0; j < t.f; j++) {
        // w_f^(jk) w_N^(pk)
        const int64_t power = ((j * k % t.f) * (t.n / t.f) + p * k * t.s) % t.n;
        const double wr = t.w.re[power], wi = t.w.im[power];
        const double *xr = x.re + t.s * (p + t.m * j), *xi = x.im + t.s * (p + t.m * j);
        for (int64_t q = 0; q < t.s; q++) {
          yr[q] += xr[q] * wr - xi[q] * wi;
          yi[q] += xr[q] * wi + xi[q] * wr;
        }
      }
    }
}

int64_t next_factor(int64_t n) {
  if (n % 4 == 0) return 4;
  for (int64_t f = 2; f * f <= n; f++)
    if (n % f == 0) return f;
  return n;
}

// Transforms x, using y; returns the one of them that holds the result.
Line transform(int64_t n, ConstLine w, Line x, Line y) {
  for (int64_t rest = n, s = 1; rest > 1;) {
    const int64_t f = next_factor(rest);
    const Stage t{n, f, rest / f, s, w};
    if (f == 4)
      stage_4(t, x, y);
    else if (f == 2)
      stage_2(t, x, y);
    else
      stage_any(t, x, y);
    const Line swap = x;
    x = y;
    y = swap;
    rest /= f;
    s *= f;
  }
  return x;
}

void fill_powers(double* re, double* im, int64_t n, double sign) {
  for (int64_t k = 0; k < n; k++) {
    const double angle = sign * 2 * 3.14159265358979323846 * double(k) / double(n);
    re[k] = __builtin_cos(angle);
    im[k] = __builtin_sin(angle);
  }
}

// The parts of the table.
struct Table {
  double *w_re, *w_im, *c_re, *c_im, *b_re, *b_im;
  Table(double* t, const DftParams& p) {
    const int64_t length = p.padded ? p.padded : p.n;
    w_re = t, w_im = w_re + length, c_re = w_im + length, c_im = c_re + p.n, b_re = c_im + p.n, b_im = b_re + length;
  }
  ConstLine w() const { return {w_re, w_im}; }
};

template <class T>
void read_line(const DftParams& p, const T* x, const T* window, Line to) {
  for (int64_t j = 0; j < p.in; j++) {
    const double scale = window ? double(widen(window[j])) : 1;
    to.re[j] = scale * double(widen(x[j * p.in_step]));
    to.im[j] = p.in_parts == 2 ? scale * double(widen(x[j * p.in_step + 1])) : 0;
  }
  for (int64_t j = p.in; j < p.n; j++) to.re[j] = to.im[j] = 0;
  if (!p.hermitian) return;
  for (int64_t j = 1; j < p.n - j; j++) {
    to.re[p.n - j] = to.re[j];
    to.im[p.n - j] = -to.im[j];
  }
}

template <class T>
void write_line(const DftParams& p, Line from, T* y) {
  const double scale = p.inverse ? 1 / double(p.n) : 1;
  for (int64_t k = 0; k < p.out; k++) {
    y[k * p.out_step] = narrow<T>(static_cast<Wide<T>>(scale * from.re[k]));
    if (p.out_parts == 2) y[k * p.out_step + 1] = narrow<T>(static_cast<Wide<T>>(scale * from.im[k]));
  }
}

INGOT_INLINE void multiply(double& re, double& im, double br, double bi) {
  const double r = re * br - im * bi;
  im = re * bi + im * br;
  re = r;
}

// The inverse transform of length m is the forward one of the conjugate, conjugated: w of one sign serves both.
Line bluestein(const DftParams& p, const Table& t, Line x, Line y) {
  const int64_t m = p.padded;
  for (int64_t j = 0; j < p.n; j++) multiply(x.re[j], x.im[j], t.c_re[j], t.c_im[j]);
  for (int64_t j = p.n; j < m; j++) x.re[j] = x.im[j] = 0;
  Line z = transform(m, t.w(), x, y);
  for (int64_t j = 0; j < m; j++) {
    multiply(z.re[j], z.im[j], t.b_re[j], t.b_im[j]);
    z.im[j] = -z.im[j];
  }
  z = transform(m, t.w(), z, z.re == x.re ? y : x);
  const double scale = 1 / double(m);
  for (int64_t k = 0; k < p.n; k++) {
    z.re[k] *= scale;
    z.im[k] *= -scale;
    multiply(z.re[k], z.im[k], t.c_re[k], t.c_im[k]);
  }
  return z;
}

template <class T>
void lines(const KernelCall* call, const DftParams& p) {
  const Table table(static_cast<double*>(call->operand[2]), p);
  const int64_t length = p.padded ? p.padded : p.n;
  auto* scratch = static_cast<double*>(call->scratch);
  for (int64_t u = call->begin; u < call->end; u++) {
    const int64_t major = u / p.minor, minor = u % p.minor;
    const Line x{scratch, scratch + length}, y{scratch + 2 * length, scratch + 3 * length};
    read_line(p, static_cast<const T*>(call->operand[0]) + major * p.in_major + minor * p.in_minor,
              static_cast<const T*>(call->operand[1]), x);
    const Line z = p.padded ? bluestein(p, table, x, y) : transform(p.n, table.w(), x, y);
    write_line(p, z, static_cast<T*>(call->operand[3]) + major * p.out_major + minor * p.out_minor);
  }
}

}  // namespace

extern "C" KernelStatus ingot_dft_table(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const DftParams*>(call->param);
  const Table t(static_cast<double*>(call->operand[0]), p);
  const double sign = p.inverse ? 1 : -1;
  if (!p.padded) {
    fill_powers(t.w_re, t.w_im, p.n, sign);
    return kOk;
  }
  const int64_t m = p.padded;
  fill_powers(t.w_re, t.w_im, m, -1);
  auto* scratch = static_cast<double*>(call->scratch);
  const Line x{scratch, scratch + m}, y{scratch + 2 * m, scratch + 3 * m};
  for (int64_t j = 0; j < m; j++) x.re[j] = x.im[j] = 0;
  int64_t square = 0;  // j^2 mod 2n
  for (int64_t j = 0; j < p.n; j++) {
    const double angle = sign * 3.14159265358979323846 * double(square) / double(p.n);
    t.c_re[j] = __builtin_cos(angle);
    t.c_im[j] = __builtin_sin(angle);
    square = (square + 2 * j + 1) % (2 * p.n);
    x.re[j] = x.re[(m - j) % m] = t.c_re[j];
    x.im[j] = x.im[(m - j) % m] = -t.c_im[j];
  }
  const Line b = transform(m, t.w(), x, y);
  for (int64_t j = 0; j < m; j++) {
    t.b_re[j] = b.re[j];
    t.b_im[j] = b.im[j];
  }
  return kOk;
}

extern "C" KernelStatus ingot_dft(const KernelCall* call) {
  const auto& p = *reinterpret_cast<const DftParams*>(call->param);
  switch (static_cast<DType>(p.dtype)) {
    case DType::F64:
      lines<double>(call, p);
      break;
    case DType::F16:
      lines<F16>(call, p);
      break;
    case DType::BF16:
      lines<BF16>(call, p);
      break;
    default:
      lines<float>(call, p);
  }
  return kOk;
}

}  // namespace ingot::kernel
