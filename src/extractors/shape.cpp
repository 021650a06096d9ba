// Operators on shapes: attributes that became operands.
#include "extractors/rewriter.h"

namespace ingot {
namespace {

// The attribute becomes operand i; absent stays absent.
void to_input(Rewriter& r, const char* attr, size_t i) {
  if (auto values = r.take_ints(attr)) r.set_input(i, r.ints(*values, attr));
}

void reshape_1(Rewriter& r) {
  if (!r.node.has("shape")) r.fail(ErrorKind::InvalidModel, "attribute 'shape' is missing");
  to_input(r, "shape", 1);
}

void squeeze_11(Rewriter& r) { to_input(r, "axes", 1); }

void concat_1(Rewriter& r) { r.node.attrs.try_emplace("axis", int64_t{1}); }

// Without sizes, the parts are equal and their number is that of the results.
void split_17(Rewriter& r) {
  if (r.version < 13) to_input(r, "split", 1);  // opset 1 also allowed the operand
  if (!r.node.has_input(1)) r.node.attrs.try_emplace("num_outputs", static_cast<int64_t>(r.node.outputs.size()));
}

// Tile(x, tiles, axis) repeats along one axis.
void tile_1(Rewriter& r) {
  const auto rank = r.rank(r.need_input(0));
  const ConstantPtr tiles = r.value(r.need_input(1)), axis = r.value(r.need_input(2));
  // Opset 1 gave both in the type of x.
  auto number = [](const Constant& c) -> std::optional<int64_t> {
    if (c.elements() != 1) return std::nullopt;
    if (c.dtype == DType::I64) return c.as<int64_t>()[0];
    if (c.dtype == DType::F32) return static_cast<int64_t>(c.as<float>()[0]);
    return std::nullopt;
  };
  const auto count = tiles ? number(*tiles) : std::nullopt, at = axis ? number(*axis) : std::nullopt;
  if (!rank || !count || !at || *at < 0 || *at >= *rank)
    r.fail(ErrorKind::Unsupported, "of opset {} needs a known rank, and constants for tiles and axis", r.version);
  std::vector<int64_t> repeats(static_cast<size_t>(*rank), 1);
  repeats[static_cast<size_t>(*at)] = *count;
  r.node.inputs.resize(1);
  r.set_input(1, r.ints(repeats, "repeats"));
}

void rename_to_scatter_elements(Rewriter& r) { r.node.op = "ScatterElements"; }

constexpr Rule kRules[] = {
    {"Reshape", 1, 4, reshape_1},
    {"Squeeze", 1, 12, squeeze_11},
    {"Unsqueeze", 1, 12, squeeze_11},
    {"Concat", 1, 3, concat_1},
    {"Split", 1, 17, split_17},
    {"Tile", 1, 5, tile_1},
    {"Scatter", 9, kAnyVersion, rename_to_scatter_elements},
};

}  // namespace

RuleTable shape_rules() { return {"", kRules}; }

}  // namespace ingot
