// Plans made from the plan before are those made anew, and states are planned into their own memory.
#include "planner/plan.h"

#include <gtest/gtest.h>

#include <random>

#include "ops/rows.h"
#include "runtime/bound_graph.h"

namespace ingot {
namespace {

// One layer of a decoder: q, k, v [1, 4, tokens, 32] after a past [1, 4, rows, 32].
//   present = Concat(past, k or v); y = Attention; z = y as [tokens, 128], scaled by the number of all rows
struct Decoder {
  Decoder() {
    for (const char* name : {"q", "k", "v", "past_k", "past_v"}) {
      TensorInfo info;
      info.dtype = DType::F32;
      info.shape = Shape{1, 4, Dim::symbol(name[0] == 'p' ? "rows" : "tokens"), 32};
      g.inputs.push_back(g.add_tensor(name, info));
    }
    const TensorId keys = add("Concat", "", {g.inputs[3], g.inputs[1]}, {{"axis", int64_t{2}}});
    const TensorId values = add("Concat", "", {g.inputs[4], g.inputs[2]}, {{"axis", int64_t{-2}}});
    const TensorId y =
        add("Attention", "ingot", {g.inputs[0], g.inputs[1], g.inputs[2], kNoTensor, g.inputs[3], g.inputs[4]},
            {{"layout_out", std::string("bshd")}});
    const TensorId shape = add("Shape", "", {keys}, {{"start", int64_t{2}}, {"end", int64_t{3}}});
    const TensorId rows = add("Cast", "", {shape}, {{"to", int64_t{1}}});
    const auto to = make_constant(DType::I64, {2}, std::vector<int64_t>{-1, 128});
    const TensorId flat = add("Reshape", "", {y, g.add_constant("to", to)}, {});
    const TensorId z = add("Mul", "", {add("Relu", "", {flat}, {}), rows}, {});
    g.outputs = {z, keys, values};
  }
  TensorId add(const std::string& op, const std::string& domain, std::vector<TensorId> inputs,
               std::map<std::string, Attribute> attrs) {
    Node n;
    n.op = op;
    n.domain = domain;
    n.name = op + std::to_string(g.nodes.size());
    n.inputs = std::move(inputs);
    n.attrs = std::move(attrs);
    n.outputs = {g.add_tensor("t" + std::to_string(g.tensors.size()))};
    g.nodes.push_back(n);
    return n.outputs[0];
  }
  static PlanInputs inputs(int64_t tokens, int64_t rows) {
    const PlanInput fresh{{1, 4, tokens, 32}}, past{{1, 4, rows, 32}};
    return {fresh, fresh, fresh, past, past};
  }
  // Of the bound graph.
  static PlanInputs inputs(int64_t tokens, int64_t rows, int64_t room) {
    PlanInputs out = inputs(tokens, room);
    out.push_back({{1}, std::string(reinterpret_cast<const char*>(&rows), sizeof rows)});
    return out;
  }
  std::shared_ptr<const Graph> bound() const {
    return bind_graph(std::make_shared<Graph>(g), {{3, 1}, {4, 2}}, {})->graph;
  }
  Graph g;
};

void expect_same(const Plan& a, const Plan& b) {
  EXPECT_EQ(a.arena_bytes, b.arena_bytes);
  EXPECT_EQ(a.scratch_bytes, b.scratch_bytes);
  EXPECT_EQ(a.copies.size(), b.copies.size());
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (size_t s = 0; s < a.steps.size(); s++) {
    const Step &x = a.steps[s].bound->step, &y = b.steps[s].bound->step;
    EXPECT_EQ(x.kernel, y.kernel);
    EXPECT_EQ(x.params, y.params);
    EXPECT_EQ(x.units, y.units);
    EXPECT_EQ(x.grain, y.grain);
    EXPECT_EQ(x.scratch, y.scratch);
    EXPECT_EQ(a.steps[s].node, b.steps[s].node);
    ASSERT_EQ(a.steps[s].operands.size(), b.steps[s].operands.size());
    for (size_t i = 0; i < a.steps[s].operands.size(); i++) {
      const Location &l = a.steps[s].operands[i], &m = b.steps[s].operands[i];
      EXPECT_EQ(l.kind, m.kind);
      EXPECT_EQ(l.index, m.index);
      EXPECT_EQ(l.offset, m.offset);
    }
  }
  for (size_t r = 0; r < a.results.size(); r++) {
    EXPECT_EQ(a.results[r].dims, b.results[r].dims);
    EXPECT_EQ(a.results[r].in_input, b.results[r].in_input);
  }
}

const std::vector<Tied> kTied = {{3, 1}, {4, 2}};

TEST(Lowering, UpdatedIsAsNew) {
  const Decoder d;
  const auto bound = d.bound();
  Lowering kept(d.g, d.g.outputs), kept_bound(*bound, bound->outputs);
  PlacedBuffers placed, placed_bound;
  std::mt19937 random{5};
  for (int i = 0; i < 60; i++) {
    const int64_t tokens = random() % 6, rows = random() % 40, room = random() % 2 ? 64 : 128;
    Lowering fresh(d.g, d.g.outputs), fresh_bound(*bound, bound->outputs);
    kept.update(d.inputs(tokens, rows));
    fresh.update(d.inputs(tokens, rows));
    expect_same(make_plan(kept, nullptr, {}, &placed), make_plan(fresh, nullptr));
    kept_bound.update(d.inputs(tokens, rows, room));
    fresh_bound.update(d.inputs(tokens, rows, room));
    expect_same(make_plan(kept_bound, nullptr, kTied, &placed_bound), make_plan(fresh_bound, nullptr, kTied));
  }
}

TEST(Lowering, GoesOnAfterAnError) {
  const Decoder d;
  const auto bound = d.bound();
  Lowering kept(*bound, bound->outputs), fresh(*bound, bound->outputs);
  kept.update(d.inputs(1, 5, 64));
  PlanInputs wrong = d.inputs(2, 7, 64);
  wrong[4].dims[1] = 3;
  EXPECT_THROW(kept.update(wrong), Error);
  EXPECT_THROW(kept.update(d.inputs(2, 63, 64)), RoomNeeded);
  kept.update(d.inputs(2, 7, 64));
  fresh.update(d.inputs(2, 7, 64));
  expect_same(make_plan(kept, nullptr, kTied), make_plan(fresh, nullptr, kTied));
}

TEST(Lowering, KeepsTheStepsOfOtherNodes) {
  Decoder d;
  TensorInfo info;
  info.dtype = DType::F32;
  const TensorId x = d.g.add_tensor("x", info);
  d.g.inputs.push_back(x);
  d.g.outputs.push_back(d.add("Softmax", "", {x}, {}));
  Lowering low(d.g, d.g.outputs);
  auto with_x = [&](int64_t rows, int64_t n) {
    PlanInputs inputs = Decoder::inputs(1, rows);
    inputs.push_back({{n, 8}});
    return inputs;
  };
  low.update(with_x(3, 2));
  const auto before = low.nodes();
  low.update(with_x(4, 2));
  EXPECT_EQ(before.back(), low.nodes().back());
  EXPECT_NE(before[0], low.nodes()[0]);
  low.update(with_x(4, 3));
  EXPECT_NE(before.back(), low.nodes().back());
}

TEST(Plan, AddsRowsInTheMemoryOfAState) {
  const Decoder d;
  const auto bound = d.bound();
  Lowering low(*bound, bound->outputs);
  low.update(d.inputs(1, 37, 64));
  const Plan plan = make_plan(low, nullptr, kTied);
  EXPECT_EQ(plan.results[0].in_input, -1);
  EXPECT_EQ(plan.results[1].in_input, 3);
  EXPECT_EQ(plan.results[2].in_input, 4);
  EXPECT_EQ(plan.copies.size(), 1u);  // of the number of rows, which keys and values have in common
  int copies = 0;
  for (const PlannedStep& p : plan.steps)
    if (std::string_view(p.bound->step.kernel->name) == "ingot_copy") {
      copies++;
      EXPECT_EQ(p.operands[1].kind, Location::kInput);
      EXPECT_EQ(p.bound->step.units, 4);  // a row of each head
    }
  EXPECT_EQ(copies, 2);
}

TEST(Plan, ScattersInTheMemoryOfAState) {
  Graph g;
  TensorInfo floats, ints;
  floats.dtype = DType::F32;
  ints.dtype = DType::I64;
  g.inputs = {g.add_tensor("x", floats), g.add_tensor("at", ints), g.add_tensor("values", floats)};
  Node n;
  n.op = "ScatterND";
  n.name = "scatter";
  n.inputs = g.inputs;
  n.outputs = g.outputs = {g.add_tensor("y")};
  g.nodes = {n};
  Lowering low(g, g.outputs);
  low.update({{{8, 3}}, {{2, 1}}, {{2, 3}}});
  const Plan plain = make_plan(low, nullptr), tied = make_plan(low, nullptr, {{0, 0}});
  EXPECT_EQ(plain.results[0].in_input, -1);
  EXPECT_EQ(plain.steps.size(), 2u);
  EXPECT_EQ(tied.results[0].in_input, 0);
  EXPECT_EQ(tied.steps.size(), 1u);
}

}  // namespace
}  // namespace ingot
