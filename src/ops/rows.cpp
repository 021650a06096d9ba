#include "ops/rows.h"

#include "kernels/fill.h"
#include "ops/layout.h"

namespace ingot {
namespace {

size_t axis_of(const Node& node) { return static_cast<size_t>(node.need_int("axis")); }

void infer_rows(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  Shape out = ctx.shape(0);
  const auto length = ctx.values(1);
  out.at(axis_of(ctx.node)) = length ? length->at(0) : Dim::unknown();
  ctx.set_shape(0, std::move(out));
}

void lower_rows(LowerContext& ctx) { ctx.fail("only the shape of these rows can be read"); }

void infer_row_count(InferContext& ctx) {
  ctx.set(0, DType::I64, {1});
  ctx.set_values(0, {ctx.shape(0).at(axis_of(ctx.node))});
}

// Never reached: infer has given the result.
void lower_row_count(LowerContext& ctx) { ctx.fail("the result should have been known from the shape"); }

void infer_memory(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(0));
  ctx.set_shape(0, ctx.shape(0));
}

// Rows [from, to) of the memory, which is the result, as what is written there: source . strides.
void write_rows(LowerContext& ctx, Operand source, std::vector<int64_t> strides, int64_t from, int64_t to) {
  auto dims = ctx.dims(0);
  const size_t axis = axis_of(ctx.node);
  const auto memory = strides_of(dims);
  if (to > dims[axis]) throw RoomNeeded{ctx.node.inputs[0], to};
  dims[axis] = to - from;
  ctx.view(0, 0);
  emit_copy(ctx, source, ctx.output(0), element_bytes(ctx, ctx.in(0).dtype),
            {dims, std::move(strides), memory, 0, from * memory[axis]});
}

void lower_append(LowerContext& ctx) {
  const int64_t length = ctx.values(1)[0];
  write_rows(ctx, ctx.input(2), strides_of(ctx.dims(2)), length, length + ctx.dims(2)[axis_of(ctx.node)]);
}

void lower_extend(LowerContext& ctx) {
  Operand value = ctx.input(3);
  if (!ctx.has(3)) {
    const int64_t size = element_bytes(ctx, ctx.in(0).dtype);
    value = ctx.shared_temporary(size);
    Step& zero = ctx.step(ingot_fill_kernel);
    zero.operands = {value};
    zero.params = params_of(FillParams{size, 0, 0});
  }
  const std::vector<int64_t> everywhere(ctx.dims(0).size());
  write_rows(ctx, value, everywhere, ctx.values(1)[0], ctx.values(2)[0]);
}

}  // namespace

void register_rows(OpRegistry& r) {
  r.add({"Rows", "ingot", 2, 2, 1, 1, infer_rows, lower_rows});
  r.add({"RowCount", "ingot", 1, 1, 1, 1, infer_row_count, lower_row_count});
  r.add({"Append", "ingot", 3, 3, 1, 1, infer_memory, lower_append});
  r.add({"Extend", "ingot", 3, 4, 1, 1, infer_memory, lower_extend});
}

}  // namespace ingot
