// Operators that keep the elements and their order and change only the shape: Reshape, Flatten, Squeeze, Unsqueeze,
// Identity. They cost nothing at run time.
#include <algorithm>

#include "base/checked.h"
#include "ops/host.h"
#include "ops/layout.h"

namespace ingot {
namespace {

// The shape operand with 0 resolved and -1 left in place; the position of the -1, or npos.
Shape requested_shape(InferContext& ctx, const std::vector<Dim>& wanted, size_t& free_dim) {
  const Shape& in = ctx.shape(0);
  const bool allow_zero = ctx.node.get_int("allowzero", 0) != 0;
  Shape out;
  free_dim = std::string::npos;
  for (size_t i = 0; i < wanted.size(); i++) {
    const Dim& d = wanted[i];
    if (d.is(0) && !allow_zero) {
      ctx.require(i < in.size(),
                  "dim {} of the new shape {} is 0, meaning \"as in the input\", but the input {} has only {} dims", i,
                  str(wanted), str(in), in.size());
      out.push_back(in[i]);
      continue;
    }
    if (d.is(-1)) {
      ctx.require(free_dim == std::string::npos, "the new shape {} has more than one -1", str(wanted));
      free_dim = i;
    } else {
      ctx.require(!d.is_const() || d.value() >= 0, "the new shape {} has the negative size {}", str(wanted), d.str());
    }
    out.push_back(d);
  }
  if (allow_zero && free_dim != std::string::npos)
    ctx.require(std::none_of(wanted.begin(), wanted.end(), [](const Dim& d) { return d.is(0); }),
                "the new shape {} has both 0 and -1, which allowzero=1 forbids", str(wanted));
  return out;
}

void infer_reshape(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  const auto wanted = ctx.values(1);
  if (!wanted) {
    const Shape& s = ctx.shape(1);
    ctx.require(s.size() == 1, "the shape operand must have rank 1, it has shape {}", str(s));
    if (s[0].is_const()) set_reshaped(ctx, 0, 0, unknown_shape(ctx, s[0].value()));
    return;
  }
  size_t free_dim;
  Shape out = requested_shape(ctx, *wanted, free_dim);
  const Shape& in = ctx.shape(0);
  if (free_dim != std::string::npos) {
    // Dims kept in place cancel before anything is divided: [b, s, h*d] -> [b, s, h, -1] needs no b/b.
    Dim rest = 1, total = 1;
    std::vector<bool> used(in.size());
    for (size_t i = 0; i < out.size(); i++) {
      if (i == free_dim) continue;
      auto same = [&] {
        for (size_t k = 0; k < in.size(); k++)
          if (!used[k] && !in[k].is_const() && in[k] == out[i]) return k;
        return in.size();
      }();
      if (same < in.size())
        used[same] = true;
      else
        rest = rest * out[i];
    }
    for (size_t k = 0; k < in.size(); k++)
      if (!used[k]) total = total * in[k];
    const bool exact = total.is_const() && rest.is_const();
    if (exact)
      ctx.require(rest.value() != 0 ? total.value() % rest.value() == 0 : total.value() == 0,
                  "{} cannot be reshaped to {}: {} elements do not divide by {}", str(in), str(*wanted), total.str(),
                  rest.str());
    out[free_dim] = exact && rest.is(0) ? Dim(0) : floor_div(total, rest);
  }
  const Dim before = product(in), after = product(out);
  ctx.require(!before.is_const() || !after.is_const() || before == after,
              "{} cannot be reshaped to {}: {} elements against {}", str(in), str(*wanted), before.str(), after.str());
  set_reshaped(ctx, 0, 0, std::move(out));
}

void infer_flatten(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  const Shape& in = ctx.shape(0);
  const int64_t rank = ctx.rank(0), given = ctx.node.get_int("axis", 1);
  ctx.require(given >= -rank && given <= rank, "axis {} is outside [{}, {}]", given, -rank, rank);
  const auto axis = in.begin() + (given < 0 ? given + rank : given);
  set_reshaped(ctx, 0, 0, {product({in.begin(), axis}), product({axis, in.end()})});
}

void infer_squeeze(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  const Shape& in = ctx.shape(0);
  std::vector<bool> drop(in.size());
  if (ctx.has(1)) {
    const auto axes = ctx.values(1);
    if (!axes) return;
    for (int64_t a : normalized_axes(ctx, *axes, ctx.rank(0))) {
      const Dim& d = in[static_cast<size_t>(a)];
      ctx.require(!d.is_const() || d.is(1), "axis {} of {} has size {}; only a size of 1 can be squeezed", a, str(in),
                  d.str());
      drop[static_cast<size_t>(a)] = true;
    }
  } else {
    for (size_t i = 0; i < in.size(); i++) {
      if (!in[i].is_const()) return;  // whether it is 1 decides the rank
      drop[i] = in[i].is(1);
    }
  }
  Shape out;
  for (size_t i = 0; i < in.size(); i++)
    if (!drop[i]) out.push_back(in[i]);
  set_reshaped(ctx, 0, 0, std::move(out));
}

void infer_unsqueeze(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  const Shape& in = ctx.shape(0);
  const auto axes = ctx.values(1);
  if (!axes) {
    const Shape& s = ctx.shape(1);
    if (s.size() == 1 && s[0].is_const()) ctx.set_shape(0, unknown_shape(ctx, checked_add(ctx.rank(0), s[0].value())));
    return;
  }
  const size_t rank = in.size() + axes->size();
  std::vector<bool> added(rank);
  for (int64_t a : normalized_axes(ctx, *axes, static_cast<int64_t>(rank))) added[static_cast<size_t>(a)] = true;
  Shape out;
  for (size_t i = 0, next = 0; i < rank; i++) out.push_back(added[i] ? Dim(1) : in[next++]);
  set_reshaped(ctx, 0, 0, std::move(out));
}

void infer_identity(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  ctx.out(0).form = ctx.in(0).form;
  if (ctx.in(0).form == Form::Tensor) set_reshaped(ctx, 0, 0, ctx.shape(0));
}

void lower_view(LowerContext& ctx) { ctx.view(0, 0); }

void run_identity(HostContext& ctx) { ctx.set(0, ctx.in(0)); }

}  // namespace

void register_reshape(OpRegistry& r) {
  r.add({"Reshape", "", 2, 2, 1, 1, infer_reshape, lower_view}).movement = Movement::kInOrder;
  r.add({"Flatten", "", 1, 1, 1, 1, infer_flatten, lower_view}).movement = Movement::kInOrder;
  r.add({"Squeeze", "", 1, 2, 1, 1, infer_squeeze, lower_view}).movement = Movement::kInOrder;
  r.add({"Unsqueeze", "", 2, 2, 1, 1, infer_unsqueeze, lower_view}).movement = Movement::kInOrder;
  r.add({.name = "Identity",
         .min_inputs = 1,
         .max_inputs = 1,
         .infer = infer_identity,
         .lower = lower_view,
         .host = run_identity})
      .movement = Movement::kInOrder;
}

}  // namespace ingot
