// ingot.Inverse, which onnxruntime has as com.microsoft.Inverse: of square matrices, by Gauss-Jordan elimination with
// partial pivoting, in double. A singular matrix gives infinities and NaNs. Models invert few and small matrices, so it
// runs on the host.
#include <algorithm>
#include <cmath>

#include "kernels/number.h"
#include "ops/host.h"
#include "ops/square.h"

namespace ingot {
namespace {

void infer(InferContext& ctx) { ctx.set_shape(0, infer_square_matrices(ctx)); }

// Rows of [A | unit matrix], 2 n long, become those of [unit matrix | inverse].
void invert(std::vector<double>& rows, size_t n) {
  auto row = [&](size_t i) { return rows.begin() + static_cast<ptrdiff_t>(i * 2 * n); };
  for (size_t k = 0; k < n; k++) {
    size_t pivot = k;
    for (size_t i = k + 1; i < n; i++)
      if (std::abs(row(i)[static_cast<ptrdiff_t>(k)]) > std::abs(row(pivot)[static_cast<ptrdiff_t>(k)])) pivot = i;
    if (pivot != k) std::swap_ranges(row(k), row(k + 1), row(pivot));
    const double factor = 1 / row(k)[static_cast<ptrdiff_t>(k)];
    std::for_each(row(k), row(k + 1), [&](double& v) { v *= factor; });
    for (size_t i = 0; i < n; i++) {
      const double f = row(i)[static_cast<ptrdiff_t>(k)];
      if (i != k) std::transform(row(i), row(i + 1), row(k), row(i), [&](double a, double b) { return a - f * b; });
    }
  }
}

template <class T>
void invert_all(const Constant& x, size_t n, T* out) {
  const std::span<const T> in = x.as<T>();
  for (size_t first = 0; first < in.size(); first += n * n) {
    std::vector<double> rows(2 * n * n);
    for (size_t i = 0; i < n; i++) {
      for (size_t j = 0; j < n; j++) rows[i * 2 * n + j] = double(kernel::widen(in[first + i * n + j]));
      rows[i * 2 * n + n + i] = 1;
    }
    invert(rows, n);
    for (size_t i = 0; i < n * n; i++)
      out[first + i] = kernel::narrow<T>(static_cast<kernel::Wide<T>>(rows[i / n * 2 * n + n + i % n]));
  }
}

void run(HostContext& ctx) {
  const Constant& x = *ctx.tensor(0);
  const int64_t n = x.dims.back();
  if (n != x.dims[x.dims.size() - 2]) ctx.fail("X is {}, expected square matrices", str(to_shape(x.dims)));
  std::byte* to = nullptr;
  ConstantPtr out = make_constant(x.dtype, x.dims, &to);
  kernel::with_number_type(static_cast<int64_t>(x.dtype), [&]<class T>() {
    if constexpr (kernel::kIsFloating<T>) invert_all<T>(x, static_cast<size_t>(n), reinterpret_cast<T*>(to));
  });
  ctx.set(0, out);
}

}  // namespace

void register_inverse(OpRegistry& r) {
  OpDef def = host_op("Inverse", 1, 1, 1, infer, run);
  def.domain = "ingot";
  r.add(std::move(def));
}

}  // namespace ingot
