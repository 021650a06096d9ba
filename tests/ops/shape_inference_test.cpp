// Shapes and small integer values through the operators that move data, with numbers and with symbols.
#include <gtest/gtest.h>

#include "ops/op.h"
#include "ops/quantized_product.h"

namespace ingot {
namespace {

const Dim batch = Dim::symbol("batch"), seq = Dim::symbol("seq");

// A graph built node by node, each inferred as it is added.
class Chain {
 public:
  TensorId input(Shape shape, DType dtype = DType::F32) {
    TensorInfo info;
    info.dtype = dtype;
    info.shape = std::move(shape);
    return add(std::move(info));
  }
  TensorId ints(std::vector<int64_t> values, bool scalar = false) {
    std::vector<int64_t> dims;
    if (!scalar) dims.push_back(static_cast<int64_t>(values.size()));
    TensorInfo info;
    info.dtype = DType::I64;
    info.shape = to_shape(dims);
    info.constant = make_constant(DType::I64, dims, values);
    return add(std::move(info));
  }
  TensorId floats(std::vector<float> values) {
    TensorInfo info;
    info.dtype = DType::F32;
    info.shape = Shape{static_cast<int64_t>(values.size())};
    info.constant = make_constant(DType::F32, {static_cast<int64_t>(values.size())}, values);
    return add(std::move(info));
  }
  TensorId scalar(int64_t v) { return ints({v}, true); }
  TensorId node(const std::string& op, std::vector<TensorId> inputs, std::map<std::string, Attribute> attrs = {}) {
    return nodes(op, std::move(inputs), std::move(attrs), 1)[0];
  }
  std::vector<TensorId> nodes(const std::string& op, std::vector<TensorId> inputs,
                              std::map<std::string, Attribute> attrs, size_t outputs) {
    Node n;
    n.op = op;
    n.name = "node";
    n.inputs = std::move(inputs);
    n.attrs = std::move(attrs);
    for (size_t i = 0; i < outputs; i++) n.outputs.push_back(add({}));
    const auto outs = infer_node(graph_, n, infos(), false);
    for (size_t i = 0; i < outputs; i++) graph_.info(n.outputs[i]) = outs[i];
    return n.outputs;
  }
  std::string shape(TensorId t) { return graph_.info(t).shape ? str(*graph_.info(t).shape) : "no rank"; }
  std::string values(TensorId t) { return graph_.info(t).values ? str(*graph_.info(t).values) : "none"; }

 private:
  TensorId add(TensorInfo info) {
    return graph_.add_tensor("t" + std::to_string(graph_.tensors.size()), std::move(info));
  }
  std::vector<TensorInfo> infos() const {
    std::vector<TensorInfo> out;
    for (const Tensor& t : graph_.tensors) out.push_back(t.info);
    return out;
  }
  Graph graph_;
};

// The text of the error that adding the node gives, or "".
template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.message();
  }
  return "";
}

TEST(ShapeInference, ReshapeResolvesMinusOneAgainstSymbols) {
  Chain c;
  const TensorId x = c.input({batch, seq, 768});
  EXPECT_EQ(c.shape(c.node("Reshape", {x, c.ints({0, 0, 12, -1})})), "[batch, seq, 12, 64]");
  EXPECT_EQ(c.shape(c.node("Reshape", {x, c.ints({-1, 768})})), "[batch*seq, 768]");
  EXPECT_EQ(c.shape(c.node("Reshape", {x, c.ints({0, -1})})), "[batch, 768*seq]");
}

TEST(ShapeInference, AttentionHeadsFromShapeArithmetic) {
  Chain c;
  const TensorId x = c.input({batch, seq, 768}), shape = c.node("Shape", {x});
  EXPECT_EQ(c.values(shape), "[batch, seq, 768]");
  const TensorId b = c.node("Gather", {shape, c.scalar(0)}, {{"axis", int64_t{0}}}),
                 s = c.node("Gather", {shape, c.scalar(-2)});
  EXPECT_EQ(c.values(s), "[seq]");
  const TensorId target =
      c.node("Concat", {c.node("Unsqueeze", {b, c.ints({0})}), c.node("Unsqueeze", {s, c.ints({0})}), c.ints({12, 64})},
             {{"axis", int64_t{0}}});
  EXPECT_EQ(c.values(target), "[batch, seq, 12, 64]");
  const TensorId heads =
      c.node("Transpose", {c.node("Reshape", {x, target})}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  EXPECT_EQ(c.shape(heads), "[batch, 12, seq, 64]");
}

TEST(ShapeInference, SliceKeepsSymbolsExact) {
  Chain c;
  const TensorId x = c.input({batch, seq});
  auto slice = [&](int64_t from, int64_t to, int64_t step = 1) {
    return c.shape(c.node("Slice", {x, c.ints({from}), c.ints({to}), c.ints({1}), c.ints({step})}));
  };
  EXPECT_EQ(slice(0, INT64_MAX), "[batch, seq]");
  EXPECT_EQ(slice(1, INT32_MAX), "[batch, seq - 1]");
  EXPECT_EQ(slice(0, -1), "[batch, seq - 1]");
  EXPECT_EQ(slice(-1, INT64_MAX), "[batch, 1]");
  EXPECT_EQ(slice(0, 1), "[batch, 1]");
  EXPECT_EQ(slice(0, 512), "[batch, min(512, seq)]");
  EXPECT_EQ(slice(-1, INT64_MIN, -1), "[batch, seq]");
  const TensorId size = c.node("Shape", {x}, {{"start", int64_t{1}}});
  EXPECT_EQ(c.shape(c.node("Slice", {x, c.ints({0}), size, c.ints({1})})), "[batch, seq]");
}

TEST(ShapeInference, SliceOfNumbersClampsAsNumpy) {
  Chain c;
  const TensorId x = c.input({10});
  auto slice = [&](int64_t from, int64_t to, int64_t step) {
    return c.shape(c.node("Slice", {x, c.ints({from}), c.ints({to}), c.ints({0}), c.ints({step})}));
  };
  EXPECT_EQ(slice(-20, 20, 3), "[4]");
  EXPECT_EQ(slice(8, 2, 1), "[0]");
  EXPECT_EQ(slice(20, -20, -4), "[3]");
  EXPECT_EQ(slice(0, 10, INT64_MAX), "[1]");
  EXPECT_EQ(slice(9, INT64_MIN, INT64_MIN), "[1]");
}

TEST(ShapeInference, RangeCountsAndLists) {
  Chain c;
  const TensorId x = c.input({batch, seq});
  const TensorId n = c.node("Squeeze", {c.node("Shape", {x}, {{"start", int64_t{1}}}), c.ints({0})});
  EXPECT_EQ(c.shape(c.node("Range", {c.scalar(0), n, c.scalar(1)})), "[seq]");
  const TensorId r = c.node("Range", {c.scalar(10), c.scalar(3), c.scalar(-3)});
  EXPECT_EQ(c.shape(r), "[3]");
  EXPECT_EQ(c.values(r), "[10, 7, 4]");
  EXPECT_NE(error_of([&] { c.node("Range", {c.scalar(0), c.scalar(3), c.scalar(0)}); }).find("delta is 0"),
            std::string::npos);
}

TEST(ShapeInference, SplitUnevenAndSymbolic) {
  Chain c;
  const auto parts = c.nodes("Split", {c.input({7, batch})}, {{"num_outputs", int64_t{3}}}, 3);
  EXPECT_EQ(c.shape(parts[0]) + c.shape(parts[1]) + c.shape(parts[2]), "[3, batch][3, batch][1, batch]");
  const auto thirds = c.nodes("Split", {c.input({seq * 3})}, {{"num_outputs", int64_t{3}}}, 3);
  EXPECT_EQ(c.shape(thirds[0]) + c.shape(thirds[2]), "[seq][seq]");
}

TEST(ShapeInference, ExpandAndTileUseValues) {
  Chain c;
  const TensorId x = c.input({1, seq}), shape = c.node("Shape", {c.input({batch, seq})});
  EXPECT_EQ(c.shape(c.node("Expand", {x, shape})), "[batch, seq]");
  EXPECT_EQ(c.shape(c.node("Tile", {x, c.ints({3, 2})})), "[3, 2*seq]");
  EXPECT_EQ(c.values(c.node("Expand", {c.ints({5}), c.ints({2, 2})})), "[5, 5, 5, 5]");
  EXPECT_EQ(c.values(c.node("Tile", {c.ints({5, 6}), c.ints({2})})), "[5, 6, 5, 6]");
}

TEST(ShapeInference, PadsFromShapeArithmetic) {
  // What torch writes for F.pad: pads reversed by Reshape, Slice and Transpose.
  Chain c;
  const TensorId flat = c.node(
      "Concat",
      {c.ints({1, 2, 3, 4}),
       c.node("ConstantOfShape", {c.ints({4})}, {{"value", make_constant(DType::I64, {1}, std::vector<int64_t>{0})}})},
      {{"axis", int64_t{0}}});
  const TensorId pairs = c.node("Reshape", {flat, c.ints({-1, 2})});
  const TensorId reversed = c.node("Slice", {pairs, c.ints({-1}), c.ints({INT64_MIN}), c.ints({0}), c.ints({-1})});
  const TensorId pads = c.node("Reshape", {c.node("Transpose", {reversed}), c.ints({-1})});
  EXPECT_EQ(c.values(pads), "[0, 0, 3, 1, 0, 0, 4, 2]");
  EXPECT_EQ(c.shape(c.node("Pad", {c.input({batch, 3, seq, seq}), pads})), "[batch, 3, seq + 7, seq + 3]");
}

TEST(ShapeInference, ResizeByScalesOfSymbols) {
  Chain c;
  const TensorId x = c.input({batch, 3, seq, seq}), scales = c.floats({1, 1, 2, 0.5F});
  EXPECT_EQ(c.shape(c.node("Resize", {x, kNoTensor, scales})), "[batch, 3, 2*seq, floor((seq)/(2))]");
}

TEST(ShapeInference, ErrorsNameWhatIsWrong) {
  Chain c;
  const TensorId x = c.input({2, 3, 4});
  auto expect = [&](const std::string& part, const std::string& op, std::vector<TensorId> in,
                    std::map<std::string, Attribute> attrs = {}) {
    const std::string text = error_of([&] { c.node(op, in, attrs); });
    EXPECT_NE(text.find(part), std::string::npos) << op << ": " << text;
  };
  expect("24 elements against 25", "Reshape", {x, c.ints({5, 5})});
  expect("more than one -1", "Reshape", {x, c.ints({-1, -1})});
  expect("axis 3 is outside [-3, 3)", "Squeeze", {x, c.ints({3})});
  expect("axis 1 is named twice", "Unsqueeze", {x, c.ints({1, -4})});
  expect("only a size of 1", "Squeeze", {x, c.ints({0})});
  expect("is not a permutation", "Transpose", {x}, {{"perm", std::vector<int64_t>{0, 0, 1}}});
  expect("they differ in dim 2", "Concat", {x, c.input({2, 3, 5})}, {{"axis", int64_t{0}}});
  expect("the ranks differ", "Concat", {x, c.input({2, 3})}, {{"axis", int64_t{0}}});
  expect("a step is 0", "Slice", {x, c.ints({0}), c.ints({1}), c.ints({0}), c.ints({0})});
  expect("do not broadcast", "Expand", {x, c.ints({5, 1, 1})});
  expect("remove more than", "Pad", {x, c.ints({0, 0, -3, 0, 0, -2})});
  expect("k is 5, but axis 2 has only 4", "TopK", {x, c.ints({5})});
  expect("needs scales or sizes", "Resize", {x});
  expect("overflows 64 bits", "Expand", {c.input({1}), c.ints({int64_t{1} << 40, int64_t{1} << 40})});
  expect("negative", "Tile", {x, c.ints({1, -1, 1})});
}

// A graph in a library may have been edited: what a kernel is chosen by has a known name.
TEST(ShapeInference, PackedFormsOfIntegersHaveNames) {
  Chain c;
  const TensorId a = c.input({2, 3}, DType::U8), b = c.input({100}, DType::U8);
  const auto matmul = [&](Attribute form) {
    return c.node("MatMulInteger", {a, b}, {{"packed_form", form}, {"packed_shape", std::vector<int64_t>{3, 5}}});
  };
  for (const PackedForm form : {PackedForm::Chained, PackedForm::Pairs, PackedForm::Rows, PackedForm::Dot,
                                PackedForm::Tiles, PackedForm::Depthwise}) {
    EXPECT_EQ(packed_form_from_name(name(form)), form);
    if (form == PackedForm::Depthwise) continue;
    EXPECT_EQ(c.shape(matmul(std::string(name(form)))), "[2, 5]");
  }
  const auto expect = [&](const std::string& part, Attribute form) {
    try {
      matmul(std::move(form));
      ADD_FAILURE() << part;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::InvalidModel);
      EXPECT_NE(e.message().find(part), std::string::npos) << e.message();
    }
  };
  expect("packed_form is 'braided', expected chained", std::string("braided"));
  expect("packed_form is '', expected chained", std::string());
  expect("packed_form is 'depthwise', which is for filters", std::string("depthwise"));
  expect("packed_form", int64_t{1});
}

}  // namespace
}  // namespace ingot
