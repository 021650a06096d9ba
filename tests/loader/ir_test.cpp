// The Engine IR: what is written reads back the same, and what is wrong is refused with its line.
#include <limits>

#include "emitter/ir_folder.h"
#include "emitter/ir_text.h"
#include "emitter/ir_writer.h"
#include "graphs.h"
#include "ir/dim.h"
#include "ir/folder.h"
#include "ir/reader.h"

namespace ingot {
namespace {

using testing::error_of;
using testing::Folder;
using testing::read_file;
using testing::same;

std::vector<float> ramp(size_t n) {
  std::vector<float> v(n);
  for (size_t i = 0; i < n; i++) v[i] = 0.1f * static_cast<float>(i);
  return v;
}

ConstantPtr strings(std::vector<std::string> values) {
  auto c = std::make_shared<Constant>();
  c->dtype = DType::String;
  c->dims = {static_cast<int64_t>(values.size())};
  c->strings = std::move(values);
  return c;
}

Node node(std::string op, std::string name, std::vector<TensorId> in, std::vector<TensorId> out) {
  Node n;
  n.op = std::move(op);
  n.name = std::move(name);
  n.inputs = std::move(in);
  n.outputs = std::move(out);
  n.origins = {n.name};
  return n;
}

TensorInfo typed(DType dtype, Shape shape) { return {dtype, std::move(shape), std::nullopt, nullptr}; }

// y = op(x, w) with every kind of attribute, odd names and a subgraph.
GraphPtr sample() {
  auto g = std::make_shared<Graph>();
  g->name = "a \"model\": #1";
  g->metadata = {{"author", "someone\n else"}, {"", "empty"}};
  const Dim seq = Dim::symbol("seq"), batch = Dim::symbol("batch");
  const TensorId x =
      g->add_tensor("x", typed(DType::F32, {batch, seq * 2 + 1, floor_div(seq, 3), min(seq, batch), Dim::unknown()}));
  const TensorId w = g->add_constant("null", make_constant(DType::F32, {40}, ramp(40)));
  const TensorId axes = g->add_constant("1", make_constant(DType::I64, {2}, std::vector<int64_t>{-1, INT64_MIN}));
  const TensorId names =
      g->add_constant("na\xc3\xafve: name, [x]", strings({"a", "", "\xff\x00 bytes", "true", "\xc3\xa9"}));
  const TensorId half = g->add_constant("half", make_constant(DType::F16, {1}, std::vector<uint16_t>{0x3c00}));
  const TensorId nan = g->add_constant("nan", make_constant(DType::F32, {}, std::vector<uint32_t>{0x7fc00001}));
  const TensorId empty = g->add_constant("empty", make_constant(DType::F16, {0, 3}, std::vector<uint16_t>{}));
  const TensorId flags = g->add_constant("flags", make_constant(DType::Bool, {2}, std::vector<uint8_t>{0, 1}));
  const TensorId same_w = g->add_constant("same_w", g->info(w).constant);
  const TensorId y = g->add_tensor(std::string(2000, 'y'));
  const TensorId z = g->add_tensor("z", typed(DType::I4, {Dim::symbol("?odd (name")}));
  g->inputs = {x};

  auto body = std::make_shared<Graph>();
  const TensorId a = body->add_tensor("x");
  const TensorId c = body->add_constant("w", make_constant(DType::F32, {40}, ramp(40)));
  const TensorId b = body->add_tensor("out");
  body->inputs = {a};
  body->outputs = {b, a};
  body->nodes = {node("Add", "add", {a, c}, {b})};

  Node first = node("Op", "first", {x, kNoTensor, w, axes, names, half, nan, empty, flags, same_w}, {kNoTensor, y});
  first.domain = "com.example";
  first.origins = {"a", "b c"};
  first.attrs = {{"i", int64_t{-3}},
                 {"f", 1.0f},
                 {"tiny", std::numeric_limits<float>::denorm_min()},
                 {"big", 1e6f},
                 {"max", std::numeric_limits<float>::max()},
                 {"inf", -std::numeric_limits<float>::infinity()},
                 {"nan", std::numeric_limits<float>::quiet_NaN()},
                 {"s", std::string("1")},
                 {"bytes", std::string("\x80\x00", 2)},
                 {"nul", std::string("a\0b\x1f\x7f\r\n\t\\\"", 10)},
                 {"ints", std::vector<int64_t>{1, 2}},
                 {"floats", std::vector<float>{1, 0.1f}},
                 {"strings", std::vector<std::string>{"a", "\xfe"}},
                 {"no_ints", std::vector<int64_t>{}},
                 {"no_floats", std::vector<float>{}},
                 {"no_strings", std::vector<std::string>{}},
                 {"t", make_constant(DType::F32, {4, 10}, ramp(40))},
                 {"small_t", make_constant(DType::I8, {2}, std::vector<int8_t>{-128, 127})}};
  Node second = node("If", std::string(1500, 'n'), {y, x}, {z});
  second.origins = {};
  second.attrs = {{"captures", int64_t{1}}, {"then_branch", body}, {"else_branch", body}};
  g->nodes = {first, second};
  g->outputs = {z, x};
  return g;
}

TEST(Ir, RoundTripIsExact) {
  Folder folder;
  auto g = sample();
  save_ir(*g, folder / "ir");
  auto back = load_ir(folder / "ir");
  EXPECT_TRUE(same(*g, *back)) << to_yaml(*g) << "\n---\n" << to_yaml(*back);
  EXPECT_EQ(to_yaml(*g), to_yaml(*back));
}

TEST(Ir, SavesOverItselfAndOverAnOldOne) {
  Folder folder;
  auto g = sample();
  save_ir(*g, folder / "ir");
  auto back = load_ir(folder / "ir/");
  save_ir(*back, folder / "ir/");  // its weights are mapped from the folder being replaced
  EXPECT_TRUE(same(*g, *load_ir(folder / "ir")));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path), {}), 1);
}

TEST(Ir, DoesNotReplaceWhatIsNotAnIr) {
  Folder folder;
  std::filesystem::create_directory(folder / "mine");
  folder.write("mine/thesis.tex", "precious");
  EXPECT_NE(error_of(ErrorKind::Io, [&] { save_ir(*sample(), folder / "mine"); }).find("thesis.tex"),
            std::string::npos);
  EXPECT_EQ(read_file(folder / "mine/thesis.tex"), "precious");
  folder.write("file", "precious");
  error_of(ErrorKind::Io, [&] { save_ir(*sample(), folder / "file"); });
  error_of(ErrorKind::Io, [&] { save_ir(*sample(), folder / "no/such/place"); });
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path), {}), 2);
}

TEST(Ir, EqualWeightsAreStoredOnceAndAligned) {
  WeightSink sink;
  write_graph(*sample(), sink);
  int64_t end = 0;
  for (const auto& s : sink.sections()) {
    EXPECT_EQ(s.offset % 64, 0);
    EXPECT_GE(s.offset, end);
    end = s.offset + static_cast<int64_t>(s.bytes.size());
  }
  EXPECT_EQ(sink.size(), end);
  // w and same_w share a section; half, nan, empty, body.w and t have their own.
  EXPECT_EQ(sink.sections().size(), 6u);
}

TEST(Ir, DimensionsReadBack) {
  const Dim a = Dim::symbol("a"), b = Dim::symbol("b");
  for (const Dim& d : {Dim(0), Dim(7), a, a + 1, a * 2 - 3, a * b * -1 + 4, floor_div(a + 1, Dim(2)) * 2 + b,
                       max(a, b) + 1, Dim::symbol("?/layer/NonZero:0.1") * 2}) {
    auto back = parse_dim(d.str());
    ASSERT_TRUE(back) << d.str();
    EXPECT_EQ(*back, d) << d.str();
  }
  for (const char* bad : {"", " ", "a +", "+ a", "a b", "a ++ b", "(a", "a)", "2a", "a*", "1.5"})
    EXPECT_FALSE(parse_dim(bad)) << bad;
}

TEST(Ir, FloatsAreShortestAndRecognisable) {
  EXPECT_EQ(float_text(1.0f), "1.0");
  EXPECT_EQ(float_text(0.1f), "0.1");
  EXPECT_EQ(float_text(1e30f), "1.0e+30");
  EXPECT_EQ(float_text(-0.0f), "-0.0");
  EXPECT_EQ(name_text("y"), "\"y\"");
  EXPECT_EQ(name_text("layer/0"), "layer/0");
  EXPECT_EQ(name_text("0"), "\"0\"");
}

const char* kMinimal = R"(format: ingot-ir
version: 1
model: m
weights: {file: weights.bin, size: 64}
inputs: [x]
outputs: [y]
tensors:
  x: {dtype: f32, shape: [n, 16]}
  w: {dtype: f32, shape: [16], location: [0, 64], checksum: "CHECKSUM"}
operator:
  add: {type: Add, input: [x, w], output: [y]}
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

struct Minimal {
  alignas(64) std::byte weights[64] = {};
  std::string yaml = replaced(kMinimal, "CHECKSUM", "2ffb6918c12c256e");

  std::string error(const std::string& text, ErrorKind kind = ErrorKind::InvalidModel) {
    return error_of(kind, [&] { read_graph(text, weights, nullptr); });
  }
  std::string error(const std::string& from, const std::string& to, ErrorKind kind = ErrorKind::InvalidModel) {
    return error(replaced(yaml, from, to), kind);
  }
};

TEST(Ir, HandWrittenIsRead) {
  Minimal m;
  auto g = read_graph(m.yaml, m.weights, nullptr);
  ASSERT_EQ(g->nodes.size(), 1u);
  EXPECT_EQ(g->tensor(g->outputs[0]).name, "y");  // made by the operator, not listed under tensors
  m.weights[3] = std::byte{1};
  EXPECT_NE(error_of(ErrorKind::InvalidModel, [&] { read_graph(m.yaml, m.weights, nullptr); })
                .find("line 9: checksum mismatch"),
            std::string::npos);
  read_graph(m.yaml, m.weights, nullptr, {.verify_checksums = false});
}

TEST(Ir, WhatIsWrongIsNamedWithItsLine) {
  Minimal m;
  struct Case {
    std::string from, to, message;
    ErrorKind kind = ErrorKind::InvalidModel;
  };
  const std::string huge = "9223372036854775807";
  const std::vector<Case> cases = {
      {"ingot-ir", "other", "line 1: format 'other'"},
      {"version: 1", "version: 2", "line 2: IR version 2", ErrorKind::Unsupported},
      {"version: 1", "version: one", "line 2: 'one' is not an integer"},
      {"model: m\n", "", "'model' is missing"},
      {"model: m", "model: m\ncolour: red", "line 4: the key 'colour' is not known"},
      {"size: 64", "size: 65", "line 4: the weights have 64 bytes, expected 65"},
      {"dtype: f32, shape: [n", "dtype: f33, shape: [n", "line 8: 'f33' is not an element type"},
      {"[n, 16]", "[n, -16]", "line 8: '-16' is not a dimension"},
      {"[n, 16]", "[n, a b]", "line 8: 'a b' is not a dimension"},
      {"[n, 16]", "n", "line 8: a value where a list is expected"},
      {"location: [0, 64]", "location: [64, 64]", "line 9: location [64, 64] is outside the weights"},
      {"location: [0, 64]", "location: [-64, 64]", "outside the weights"},
      {"location: [0, 64]", "location: [" + huge + ", 64]", "outside the weights"},
      {"location: [0, 64]", "location: [0, " + huge + "]", "outside the weights"},
      {"location: [0, 64]", "location: [8, 56]", "line 9: offset 8 is not a multiple of 64"},
      {"location: [0, 64]", "location: [0, 60]", "line 9: the shape takes 64 bytes, the location has 60"},
      {"location: [0, 64]", "location: [0]", "line 9: a location is [offset, size]"},
      {"shape: [16]", "shape: [-1]", "line 9: a constant has the negative dimension -1"},
      {"shape: [16]", "shape: [0, 4611686018427387904, 4]", "line 9: the size of the shape overflows"},
      {"shape: [16]", "shape: [n]", "line 9: 'n' is not an integer"},
      {"2ffb6918c12c256e", "2ffb6918c12c256f", "line 9: checksum mismatch"},
      {", checksum: \"2ffb6918c12c256e\"", "", "line 9: the key 'checksum' is missing"},
      {"  w:", "  x:", "the key 'x' is given twice"},
      {"input: [x, w]", "input: [x, v]", "line 11: tensor 'v' is not known"},
      {"input: [x, w]", "input: [y, w]", "tensor 'y' is not known"},
      {"output: [y]", "output: [y, x]", "'x' is made twice"},
      {"output: [y]", "outputs: [y]", "line 11: the key 'outputs' is not known"},
      {"output: [y]", "output: [y], attr: {a: []}", "line 11: an empty list has no kind"},
      {"output: [y]", "output: [y], attr: {a: [1, 2.0]}", "line 11: '2.0' in a list of integers"},
      {"output: [y]", "output: [y], attr: {a: 1x}", "line 11: '1x' is neither"},
      {"output: [y]", "output: [y], attr: {a: }", "line 11: an attribute has no value"},
      {"output: [y]", "output: [y], attr: {a: {b: 1}}", "line 11: the key 'b' is not known"},
      {"output: [y]", "output: [y], attr: {a: &x 1, b: *x}", "line 11: anchors are not part"},
      {"output: [y]", "output: [y], attr: {a: *x}", "line 11: "},
      {"output: [y]", "output: [y], attr: {a: !!int 1}", "line 11: tags are not part"},
      {"output: [y]", "output: [y], attr: {a: 1, a: 2}", "line 11: the key 'a' is given twice"},
      {"output: [y]", "output: [y], attr: {a: {dtype: i8, shape: [1], value: [200]}}", "line 11: 200 does not fit"},
      {"output: [y]", "output: [y], attr: {a: {dtype: i8, shape: [2], value: [20]}}",
       "line 11: 1 elements for a shape of 2"},
      {"output: [y]", "output: [y], attr: {a: {dtype: f32, shape: [1], value: [20]}}", "line 11: '20' is not a float"},
      {"outputs: [y]", "outputs: []", "line 6: the graph has no outputs"},
      {"outputs: [y]", "outputs: [q]", "line 6: tensor 'q' is not known"},
      {"inputs: [x]", "inputs: [x, x]", "input 'x' is listed twice"},
      {"inputs: [x]", "inputs: [x, w]", "'w' is both an input and a constant"},
      {"inputs: [x]", "inputs: []", "operand 'x' is read before anything makes it"},
      {"add:", "\"\":", "line 11: an operator has no name"},
      {"output: [y]}", "output: [y]", "line 12: is not valid yaml"},
      {"format", "--- {}\n---\nformat", ""},
  };
  for (const Case& c : cases) {
    const std::string text = m.error(c.from, c.to, c.kind);
    EXPECT_NE(text.find(c.message), std::string::npos) << c.to << "\n  " << text;
    EXPECT_TRUE(text.starts_with("graph.yaml: ")) << text;
  }
}

TEST(Ir, CyclesAreRefused) {
  Minimal m;
  const std::string cycle =
      replaced(m.yaml, "{type: Add, input: [x, w], output: [y]}",
               "{type: Add, input: [x, b], output: [a]}\n  b: {type: Neg, input: [a], output: [b]}");
  EXPECT_NE(m.error(replaced(replaced(cycle, "tensors:", "tensors:\n  a: {}\n  b: {}"), "outputs: [y]", "outputs: [b]"))
                .find("operand 'b' is read before anything makes it"),
            std::string::npos);
}

TEST(Ir, HostileTextIsRefusedQuickly) {
  Minimal m;
  m.error("");
  m.error("[]");
  m.error("x");
  m.error(std::string(100000, '['));
  m.error(std::string(100000, '{'));
  m.error(std::string("\0\x01\xff\xfe", 4));
  std::string deep;
  for (int i = 0; i < 600; i++) deep += std::string(static_cast<size_t>(i), ' ') + "a:\n";
  m.error(deep);
  m.error("output: [y]", "output: [y], attr: {a: " + std::string(5000, '[') + std::string(5000, ']') + "}");
  // Every prefix of a good file, and every file with one byte changed, is read or refused; nothing else happens.
  int read = 0;
  auto attempt = [&](const std::string& text) {
    try {
      read_graph(text, m.weights, nullptr, {.verify_checksums = false});
      read++;
    } catch (const Error&) {
    }
  };
  for (size_t i = 0; i < m.yaml.size(); i += 3) attempt(m.yaml.substr(0, i));
  for (size_t i = 0; i < m.yaml.size(); i++)
    for (char c : {'"', '9', '[', ':', '\n', '\x80'}) {
      std::string text = m.yaml;
      text[i] = c;
      attempt(text);
    }
  EXPECT_GT(read, 0);
}

TEST(Ir, MissingPartsOfTheFolder) {
  Folder folder;
  error_of(ErrorKind::Io, [&] { load_ir(folder / "none"); });
  save_ir(*sample(), folder / "ir");
  std::filesystem::resize_file(folder / "ir/weights.bin", 100);
  EXPECT_NE(error_of(ErrorKind::InvalidModel, [&] { load_ir(folder / "ir"); }).find("the weights have 100 bytes"),
            std::string::npos);
  std::filesystem::remove(folder / "ir/weights.bin");
  EXPECT_NE(error_of(ErrorKind::Io, [&] { load_ir(folder / "ir"); }).find("weights.bin"), std::string::npos);
}

}  // namespace
}  // namespace ingot
