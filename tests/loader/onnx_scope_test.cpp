// Subgraphs and functions: names are resolved, captured values explicit, calls inlined.
#include "models.h"

namespace ingot {
namespace {

using namespace testing;

void branch(onnx::GraphProto& g, const std::string& op, Names inputs, const char* out) {
  g.set_name(op);
  add_node(g, op, inputs, {out});
  add_output(g, out);
}

// z = cond ? y + w : -x
Model conditional() {
  Model m = Model::add();
  add_input(m.g(), "cond", {}, 9);
  auto& n = add_node(m.g(), "If", {"cond"}, {"z"}, "if");
  branch(set_graph(n, "then_branch"), "Add", {"y", "w"}, "z");  // the inner z is another tensor
  branch(set_graph(n, "else_branch"), "Neg", {"x"}, "e");
  add_output(m.g(), "z");
  return m;
}

TEST(Subgraph, BothBranchesTakeTheCapturesOfBoth) {
  auto g = conditional().load();
  const Node& n = g->nodes[1];
  ASSERT_EQ(n.get_int("captures", -1), 2);  // y and x; w is a constant, which is shared
  EXPECT_EQ(n.inputs, (std::vector<TensorId>{g->find_tensor("cond"), g->find_tensor("y"), g->find_tensor("x")}));
  for (const char* name : {"then_branch", "else_branch"}) {
    auto sub = n.get_graph(name);
    ASSERT_EQ(sub->inputs.size(), 2u);
    EXPECT_EQ(sub->tensor(sub->inputs[0]).name, "y");
    EXPECT_EQ(sub->tensor(sub->inputs[1]).name, "x");
  }
  auto then = n.get_graph("then_branch");
  EXPECT_EQ(then->info(then->find_tensor("w")).constant, g->info(g->find_tensor("w")).constant);
}

TEST(Subgraph, CapturesGoThroughSeveralLevels) {
  Model m = Model::add();
  add_input(m.g(), "cond", {}, 9);
  auto& outer = add_node(m.g(), "If", {"cond"}, {"z"}, "outer");
  auto& middle = set_graph(outer, "then_branch");
  auto& inner = add_node(middle, "If", {"cond"}, {"t"}, "inner");
  branch(set_graph(inner, "then_branch"), "Neg", {"y"}, "a");
  branch(set_graph(inner, "else_branch"), "Abs", {"y"}, "b");
  add_output(middle, "t");
  branch(set_graph(outer, "else_branch"), "Neg", {"y"}, "c");
  add_output(m.g(), "z");
  auto g = m.load();
  EXPECT_EQ(g->nodes[1].get_int("captures", 0), 2);
  auto sub = g->nodes[1].get_graph("then_branch");
  EXPECT_EQ(sub->nodes[0].get_int("captures", 0), 1);
  EXPECT_EQ(sub->tensor(sub->nodes[0].inputs[1]).name, "y");
}

TEST(Subgraph, NodesAreSortedByWhatTheirSubgraphsRead) {
  Model m = conditional();
  m.g().mutable_node()->SwapElements(0, 1);  // the If stands before what it captures
  auto g = m.load();
  EXPECT_EQ(g->nodes[0].op, "Add");
}

TEST(Subgraph, LoopKeepsItsTwoFirstOperands) {
  Model m = Model::add();
  auto& n = add_node(m.g(), "Loop", {"", ""}, {"z"}, "loop");
  auto& body = set_graph(n, "body");
  add_input(body, "i", {}, 7);
  add_input(body, "c", {}, 9);
  add_node(body, "Neg", {"y"}, {"o"});
  add_output(body, "c");
  add_output(body, "o");
  auto g = m.load();
  EXPECT_EQ(g->nodes[1].inputs, (std::vector<TensorId>{kNoTensor, kNoTensor, g->find_tensor("y")}));
  EXPECT_EQ(g->nodes[1].get_graph("body")->inputs.size(), 3u);
}

TEST(Subgraph, DepthIsLimited) {
  auto nested = [](int depth) {
    Model m = Model::add();
    add_input(m.g(), "cond", {}, 9);
    onnx::GraphProto* g = &m.g();
    for (int i = 0; i < depth; i++) {
      auto& n = add_node(*g, "If", {"cond"}, {"z"});
      if (i) add_output(*g, "z");
      g = &set_graph(n, "then_branch");
    }
    branch(*g, "Neg", {"x"}, "z");
    return m;
  };
  EXPECT_TRUE(nested(60).load());
  EXPECT_HAS(nested(70).error(), "nested more than 64 deep");
  EXPECT_HAS(nested(2000).error(), "nested too deeply");
}

onnx::FunctionProto& function(Model& m, const char* name, Names inputs, Names outputs, int64_t opset = 21) {
  auto* f = m.proto.add_functions();
  f->set_name(name);
  f->set_domain("local");
  for (const char* i : inputs) f->add_input(i);
  for (const char* o : outputs) f->add_output(o);
  auto* import = f->add_opset_import();
  import->set_version(opset);
  return *f;
}

onnx::NodeProto& call(onnx::GraphProto& g, const char* name, Names inputs, Names outputs) {
  auto& n = add_node(g, name, inputs, outputs, std::string("call_") + name);
  n.set_domain("local");
  return n;
}

TEST(Function, IsInlinedWithAttributesAndDefaults) {
  Model m = Model::add();
  auto& f = function(m, "f", {"a", "b"}, {"r"});
  f.add_attribute("alpha");
  auto* fallback = f.add_attribute_proto();
  fallback->set_name("axis");
  fallback->set_type(onnx::AttributeProto::INT);
  fallback->set_i(7);
  auto& leaky = add_node(f, "LeakyRelu", {"a"}, {"t"}, "leaky");
  add_attr(leaky, "alpha", onnx::AttributeProto::FLOAT).set_ref_attr_name("alpha");
  auto& soft = add_node(f, "Softmax", {"t"}, {"s"});
  add_attr(soft, "axis", onnx::AttributeProto::INT).set_ref_attr_name("axis");
  add_node(f, "Clip", {"s", "b"}, {"r"});
  add_attr(call(m.g(), "f", {"y"}, {"z"}), "alpha", onnx::AttributeProto::FLOAT).set_f(0.25f);
  call(m.g(), "f", {"z", "w"}, {"q"}).set_name("again");
  add_output(m.g(), "q");
  auto g = m.load();
  ASSERT_EQ(g->nodes.size(), 7u);
  EXPECT_EQ(g->nodes[1].op, "LeakyRelu");
  EXPECT_EQ(g->nodes[1].name, "call_f/leaky");
  EXPECT_EQ(g->nodes[1].origins, std::vector<std::string>{"call_f/leaky"});
  EXPECT_EQ(g->nodes[1].get_float("alpha", 0), 0.25f);
  EXPECT_FALSE(g->nodes[4].has("alpha"));  // not given, no default
  EXPECT_EQ(g->nodes[2].get_int("axis", 0), 7);
  EXPECT_EQ(g->nodes[3].inputs.size(), 1u);  // b was absent
  EXPECT_EQ(g->nodes[6].inputs.size(), 2u);
  EXPECT_EQ(g->tensor(g->nodes[3].outputs[0]).name, "z");
}

TEST(Function, BodiesHaveTheirOwnOpset) {
  Model m = Model::add();
  set_ints(add_node(function(m, "f", {"a"}, {"r"}, 11), "Unsqueeze", {"a"}, {"r"}), "axes", {0});
  call(m.g(), "f", {"y"}, {"z"});
  auto g = m.load();
  ASSERT_EQ(g->nodes[1].inputs.size(), 2u);
  EXPECT_TRUE(g->info(g->nodes[1].inputs[1]).constant);
}

TEST(Function, ResultsThatAreOperandsAreCopied) {
  Model m = Model::add();
  auto& f = function(m, "f", {"a"}, {"a", "r", "r"});
  add_node(f, "Neg", {"a"}, {"r"});
  call(m.g(), "f", {"y"}, {"p", "q", "s"});
  for (const char* o : {"p", "q", "s"}) add_output(m.g(), o);
  auto g = m.load();
  ASSERT_EQ(g->nodes.size(), 4u);
  EXPECT_EQ(g->nodes[1].op, "Neg");
  EXPECT_EQ(g->nodes[2].op, "Identity");
  EXPECT_EQ(g->nodes[3].op, "Identity");
}

TEST(Function, CallsInsideFunctionsAndSubgraphs) {
  Model m = conditional();
  add_node(function(m, "inner", {"a"}, {"r"}), "Neg", {"a"}, {"r"});
  auto& outer = function(m, "outer", {"a"}, {"r"});
  add_node(outer, "inner", {"a"}, {"t"}).set_domain("local");
  add_node(outer, "inner", {"t"}, {"r"}).set_domain("local");
  auto* then = m.g().mutable_node(1)->mutable_attribute(0)->mutable_g();
  call(*then, "outer", {"y"}, {"more"});
  auto g = m.load();
  EXPECT_EQ(g->nodes[1].get_graph("then_branch")->nodes.size(), 3u);
}

TEST(Function, RecursionIsRefused) {
  Model m = Model::add();
  add_node(function(m, "f", {"a"}, {"r"}), "g", {"a"}, {"r"}).set_domain("local");
  add_node(function(m, "g", {"a"}, {"r"}), "f", {"a"}, {"r"}).set_domain("local");
  call(m.g(), "f", {"y"}, {"z"});
  EXPECT_HAS(m.error(), "function 'f' calls itself");
}

TEST(Function, ExplosionIsRefused) {
  Model m = Model::add();
  for (int level = 0; level < 20; level++) {
    auto& f = function(m, ("f" + std::to_string(level)).c_str(), {"a"}, {"r9"});
    for (int i = 0; i < 10; i++) {
      auto& n = *f.add_node();
      n.set_op_type(level == 0 ? "Neg" : "f" + std::to_string(level - 1));
      if (level) n.set_domain("local");
      n.add_input("a");
      n.add_output("r" + std::to_string(i));
    }
  }
  call(m.g(), "f19", {"y"}, {"z"});
  EXPECT_HAS(m.error(), "nodes once functions are inlined");
}

TEST(Function, WrongCallsAreRefused) {
  Model m = Model::add();
  add_node(function(m, "f", {"a"}, {"r"}), "Neg", {"q"}, {"r"});
  call(m.g(), "f", {"y"}, {"z"});
  EXPECT_HAS(m.error(), "tensor 'q' is not defined");
  m.proto.mutable_functions(0)->mutable_node(0)->set_input(0, "a");
  m.g().mutable_node(1)->add_input("w");
  EXPECT_HAS(m.error(), "calls function 'f' with 2 operands and 1 results; it has 1 and 1");
  function(m, "f", {}, {});
  EXPECT_HAS(m.error(), "function 'f' is defined twice");
}

}  // namespace
}  // namespace ingot
