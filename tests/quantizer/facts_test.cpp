// quantize(graph, facts) with scales given from outside.
#include "quantizer/facts.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace ingot {
namespace {

// y = x w, with w = [[1, -2], [3, 0.5]]
Graph product() {
  Graph g;
  const TensorId x = g.add_tensor("x", {DType::F32, Shape{Dim::symbol("n"), 2}, std::nullopt, nullptr});
  const TensorId w = g.add_constant("w", make_constant(DType::F32, {2, 2}, std::vector<float>{1, -2, 3, 0.5f}));
  const TensorId y = g.add_tensor("y", {DType::F32, Shape{Dim::symbol("n"), 2}, std::nullopt, nullptr});
  Node n{.op = "MatMul", .name = "product"};
  n.inputs = {x, w};
  n.outputs = {y};
  g.inputs = {x};
  g.outputs = {y};
  g.nodes = {n};
  return g;
}

QuantizationFacts facts() {
  QuantizationFacts f;
  f.tensors["x"] = {.dtype = DType::U8, .scale = {0.5f}, .zero_point = {128}};
  f.tensors["w"] = {.dtype = DType::I8, .scale = {0.03f, 0.02f}, .zero_point = {0, 0}, .axis = 1};
  f.nodes["product"] = {{0, 1}};
  return f;
}

std::string error_of(const QuantizationFacts& f) {
  Graph g = product();
  try {
    quantize(g, f);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::InvalidInput);
    return e.message();
  }
  return "";
}

TEST(Facts, BecomeNodesAndConstants) {
  Graph g = product();
  quantize(g, facts());
  verify(g);
  std::vector<std::string> ops;
  for (const Node& n : g.nodes) ops.push_back(n.op);
  EXPECT_EQ(std::count(ops.begin(), ops.end(), "QuantizeLinear"), 1);
  EXPECT_EQ(std::count(ops.begin(), ops.end(), "DequantizeLinear"), 2);
  const auto q = g.info(g.find_tensor("w_quantized")).constant->as<int8_t>();
  EXPECT_EQ(std::vector<int>(q.begin(), q.end()), (std::vector<int>{33, -100, 100, 25}));
  EXPECT_EQ(g.info(g.find_tensor("x_scale")).constant->as<float>()[0], 0.5f);
  EXPECT_EQ(g.info(g.find_tensor("x_zero_point")).constant->as<uint8_t>()[0], 128);
}

TEST(Facts, ThatMakeNoSenseAreRefused) {
  auto f = facts();
  f.tensors["x"].scale = {0};
  EXPECT_NE(error_of(f).find("not a positive number"), std::string::npos);
  f = facts();
  f.tensors["x"].zero_point = {256};
  EXPECT_NE(error_of(f).find("does not fit u8"), std::string::npos);
  f = facts();
  f.tensors["w"].scale = {1, 1, 1};
  f.tensors["w"].zero_point = {0, 0, 0};
  EXPECT_NE(error_of(f).find("3 scales"), std::string::npos);
  f = facts();
  f.tensors.erase("x");
  EXPECT_NE(error_of(f).find("no scale is given"), std::string::npos);
  f = facts();
  f.nodes["other"] = {{0}};
  EXPECT_NE(error_of(f).find("no node 'other'"), std::string::npos);
  f = facts();
  f.tensors["x"].dtype = DType::F32;
  EXPECT_NE(error_of(f).find("not a type to quantize to"), std::string::npos);
}

TEST(Facts, FourBitsArePackedInBlocks) {
  const ConstantPtr w = make_constant(DType::F32, {4, 1}, std::vector<float>{1, -1, 4, 8});
  TensorFacts f{.dtype = DType::I4, .scale = {0.5f, 2}, .zero_point = {0, 0}, .axis = 0, .block = 2};
  const ConstantPtr q = quantize_constant(*w, f);
  ASSERT_EQ(q->bytes.size(), 2u);
  EXPECT_EQ(static_cast<int>(q->bytes[0]), 0xe2);  // 2, -2
  EXPECT_EQ(static_cast<int>(q->bytes[1]), 0x42);  // 2, 4
}

}  // namespace
}  // namespace ingot
