#include "kernels/couple.h"

namespace ingot::kernel {
namespace {

// Q_ii = sum_j r_ji^2,  Q_ij = -r_ij r_ji
void fill_matrix(const double* r, int64_t n, double* q) {
  for (int64_t i = 0; i < n; i++) q[i * n + i] = 0;
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = i + 1; j < n; j++, r++) {
      const double ij = *r, ji = 1 - ij;
      q[i * n + i] += ji * ji;
      q[j * n + j] += ij * ij;
      q[i * n + j] = q[j * n + i] = -ij * ji;
    }
}

// One p after another gets the value that is best for it, and all are scaled to a sum of 1.
void solve(const double* q, int64_t n, double* qp, double* p) {
  const double tolerance = 0.005 / double(n);
  for (int64_t i = 0; i < n; i++) p[i] = 1 / double(n);
  for (int64_t round = 0; round < (n > 100 ? n : 100); round++) {
    double pqp = 0, error = 0;
    for (int64_t i = 0; i < n; i++) {
      qp[i] = 0;
      for (int64_t j = 0; j < n; j++) qp[i] += q[i * n + j] * p[j];
      pqp += p[i] * qp[i];
    }
    for (int64_t i = 0; i < n; i++) {
      const double e = __builtin_fabs(qp[i] - pqp);
      error = e > error ? e : error;
    }
    if (error < tolerance) return;
    for (int64_t i = 0; i < n; i++) {
      const double diff = (pqp - qp[i]) / q[i * n + i], scale = 1 / (1 + diff);
      p[i] += diff;
      pqp = (pqp + diff * (diff * q[i * n + i] + 2 * qp[i])) * scale * scale;
      for (int64_t j = 0; j < n; j++) {
        qp[j] = (qp[j] + diff * q[i * n + j]) * scale;
        p[j] *= scale;
      }
    }
  }
}

}  // namespace

extern "C" KernelStatus ingot_couple(const KernelCall* call) {
  const int64_t n = reinterpret_cast<const CoupleParams*>(call->param)->classes;
  auto* q = static_cast<double*>(call->scratch);
  for (int64_t row = call->begin; row < call->end; row++) {
    const double* r = static_cast<const double*>(call->operand[0]) + row * (n * (n - 1) / 2);
    double* p = static_cast<double*>(call->operand[1]) + row * n;
    fill_matrix(r, n, q);
    solve(q, n, q + n * n, p);
  }
  return kOk;
}

}  // namespace ingot::kernel
