// The ONNX loader on models that are as they should be.
#include "models.h"

namespace ingot {
namespace {

using namespace testing;

TEST(Onnx, InputsHaveTypesAndSymbols) {
  Model m = Model::add();
  auto* shape = m.g().mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape();
  shape->clear_dim();
  shape->add_dim()->set_dim_param("batch size");
  shape->add_dim()->set_dim_param("batch+size");  // another text, another symbol
  shape->add_dim()->set_dim_value(4);
  shape->add_dim();
  shape->add_dim()->set_dim_value(-1);
  shape->add_dim()->set_dim_param("batch size");
  auto g = m.load();
  ASSERT_EQ(g->inputs.size(), 1u);
  const TensorInfo& x = g->info(g->inputs[0]);
  EXPECT_EQ(x.dtype, DType::F32);
  EXPECT_EQ(str(*x.shape), "[batch_size, batch_size_1, 4, x_dim3, x_dim4, batch_size]");
  EXPECT_EQ(g->nodes[0].origins, std::vector<std::string>{"add"});
}

TEST(Onnx, InputWithoutShapeHasUnknownRank) {
  Model m = Model::add();
  m.g().mutable_input(0)->mutable_type()->mutable_tensor_type()->clear_shape();
  auto g = m.load();
  EXPECT_FALSE(g->info(g->inputs[0]).shape);
}

TEST(Onnx, InitializersThatAreInputsAreConstants) {
  Model m = Model::add();
  add_input(m.g(), "w", {4});
  auto g = m.load();
  EXPECT_EQ(g->inputs.size(), 1u);
  EXPECT_TRUE(g->info(g->find_tensor("w")).constant);
}

TEST(Onnx, UnnamedAndRepeatedNodesGetNames) {
  Model m = Model::add();
  m.g().mutable_node(0)->clear_name();
  add_node(m.g(), "Relu", {"y"}, {"z"}, "Add_0");
  add_node(m.g(), "Relu", {"z"}, {"q"}, "Add_0");
  auto g = m.load();
  EXPECT_EQ(g->nodes[1].name, "Add_0");
  EXPECT_EQ(g->nodes[0].name, "Add_0_2");
  EXPECT_EQ(g->nodes[2].name, "Add_0_1");
}

TEST(Onnx, OptionalOperandsAreAbsent) {
  Model m = Model::add();
  auto& n = add_node(m.g(), "Clip", {"y", "", "w", "", ""}, {"z", ""});
  n.set_domain("ai.onnx");
  auto g = m.load();
  EXPECT_EQ(g->nodes[1].domain, "");
  EXPECT_EQ(g->nodes[1].inputs, (std::vector<TensorId>{g->find_tensor("y"), kNoTensor, g->find_tensor("w")}));
  EXPECT_EQ(g->nodes[1].outputs.size(), 1u);
}

TEST(Onnx, LargeWeightsAreNotCopied) {
  Folder folder;
  Model m = Model::add(1 << 18);
  set_raw(add_tensor(m.g(), "bytes", 2, {3000}), 3000, 7);
  set_raw(add_tensor(m.g(), "small", 1, {10}), 40, 3);
  auto g = load_onnx(m.save(folder));
  const Constant &w = *g->info(g->find_tensor("w")).constant, &b = *g->info(g->find_tensor("bytes")).constant;
#if !__has_feature(undefined_behavior_sanitizer)
  EXPECT_EQ(w.owner, b.owner);  // the mapped file
#endif
  EXPECT_EQ(w.bytes.size(), 4u << 18);
  EXPECT_EQ(b.as<uint8_t>()[2999], 7);
  for (const Tensor& t : g->tensors)
    if (t.info.constant && t.info.constant->bytes.size() < 1000)
      EXPECT_EQ(reinterpret_cast<uintptr_t>(t.info.constant->bytes.data()) % 64, 0u);
}

// A sparse file on disk; parsing it whole would be refused by protobuf.
TEST(Onnx, FilesOfMoreThan2GB) {
  Folder folder;
  const uint64_t size = 3ull << 30;
  Model m = Model::add();
  auto varint = [](uint64_t v) {
    std::string s;
    for (; v >= 0x80; v >>= 7) s += static_cast<char>(v | 0x80);
    return s + static_cast<char>(v);
  };
  onnx::TensorProto t;
  t.set_name("big");
  t.set_data_type(2);
  t.add_dims(static_cast<int64_t>(size));
  const std::string tensor = t.SerializeAsString() + "\x4a" + varint(size);  // raw_data = 9
  const std::string graph =
      m.g().SerializeAsString() + "\x2a" + varint(tensor.size() + size) + tensor;  // initializer = 5
  m.proto.clear_graph();
  const std::string head = m.proto.SerializeAsString() + "\x3a" + varint(graph.size() + size) + graph;  // graph = 7
  const std::string path = folder.write("big.onnx", head);
  std::filesystem::resize_file(path, head.size() + size);
  auto g = load_onnx(path);
  EXPECT_EQ(g->info(g->find_tensor("big")).constant->bytes.size(), size);
}

TEST(Onnx, TypedFieldsOfEveryType) {
  Model m = Model::add();
  auto ints = [&](const char* name, int type, std::initializer_list<int32_t> values, int64_t n) {
    auto& t = add_tensor(m.g(), name, type, {n});
    for (int32_t v : values) t.add_int32_data(v);
  };
  ints("u8", 2, {255, 0}, 2);
  ints("i8", 3, {-1, 127}, 2);
  ints("u16", 4, {65535}, 1);
  ints("i16", 5, {-2}, 1);
  ints("i32", 6, {INT32_MIN}, 1);
  ints("bool", 9, {1, 0, 1}, 3);
  ints("f16", 10, {0x3c00}, 1);
  ints("bf16", 16, {0x3f80}, 1);
  ints("f8", 17, {0x38}, 1);
  ints("i4", 22, {0x21, 0x03}, 3);
  ints("u2", 25, {0xe4, 1}, 5);
  add_tensor(m.g(), "f32", 1, {2}).add_float_data(1.5f);
  m.g().mutable_initializer(m.g().initializer_size() - 1)->add_float_data(-2);
  auto& c64 = add_tensor(m.g(), "c64", 14, {1});
  c64.add_float_data(1);
  c64.add_float_data(2);
  add_tensor(m.g(), "i64", 7, {}).add_int64_data(INT64_MIN);
  add_tensor(m.g(), "f64", 11, {1}).add_double_data(0.1);
  add_tensor(m.g(), "u32", 12, {1}).add_uint64_data(UINT32_MAX);
  add_tensor(m.g(), "u64", 13, {1}).add_uint64_data(UINT64_MAX);
  add_tensor(m.g(), "empty", 1, {0, 5});
  auto& s = add_tensor(m.g(), "string", 8, {2});
  s.add_string_data("a");
  s.add_string_data("\xff");
  auto g = m.load();
  auto c = [&](const char* name) -> const Constant& { return *g->info(g->find_tensor(name)).constant; };
  EXPECT_EQ(c("u8").as<uint8_t>()[0], 255);
  EXPECT_EQ(c("i8").as<int8_t>()[0], -1);
  EXPECT_EQ(c("u16").as<uint16_t>()[0], 65535);
  EXPECT_EQ(c("i16").as<int16_t>()[0], -2);
  EXPECT_EQ(c("i32").as<int32_t>()[0], INT32_MIN);
  EXPECT_EQ(c("bool").bytes.size(), 3u);
  EXPECT_EQ(c("f16").as<uint16_t>()[0], 0x3c00);
  EXPECT_EQ(c("bf16").as<uint16_t>()[0], 0x3f80);
  EXPECT_EQ(c("f8").as<uint8_t>()[0], 0x38);
  EXPECT_EQ(c("i4").bytes.size(), 2u);
  EXPECT_EQ(c("u2").as<uint8_t>()[0], 0xe4);
  EXPECT_EQ(c("f32").as<float>()[1], -2);
  EXPECT_EQ(c("c64").as<float>()[1], 2);
  EXPECT_EQ(c("i64").as<int64_t>()[0], INT64_MIN);
  EXPECT_TRUE(c("i64").dims.empty());
  EXPECT_EQ(c("f64").as<double>()[0], 0.1);
  EXPECT_EQ(c("u32").as<uint32_t>()[0], UINT32_MAX);
  EXPECT_EQ(c("u64").as<uint64_t>()[0], UINT64_MAX);
  EXPECT_EQ(c("empty").bytes.size(), 0u);
  EXPECT_EQ(c("string").strings, (std::vector<std::string>{"a", "\xff"}));
}

TEST(Onnx, SparseInitializersBecomeDense) {
  Model m = Model::add();
  auto* s = m.g().add_sparse_initializer();
  s->mutable_values()->set_name("s");
  s->mutable_values()->set_data_type(1);
  s->mutable_values()->add_dims(2);
  s->mutable_values()->add_float_data(5);
  s->mutable_values()->add_float_data(6);
  s->mutable_indices()->set_data_type(7);
  s->mutable_indices()->add_dims(2);
  s->mutable_indices()->add_dims(2);
  for (int64_t i : {0, 1, 2, 0}) s->mutable_indices()->add_int64_data(i);
  s->add_dims(3);
  s->add_dims(2);
  auto g = m.load();
  auto v = g->info(g->find_tensor("s")).constant->as<float>();
  EXPECT_EQ(std::vector<float>(v.begin(), v.end()), (std::vector<float>{0, 5, 0, 0, 6, 0}));

  s->mutable_indices()->set_int64_data(2, 3);
  EXPECT_HAS(m.error(), "sparse tensor 's' has index 3 outside [0, 3)");
  s->set_dims(0, int64_t{1} << 40);
  EXPECT_HAS(m.error(ErrorKind::Unsupported), "as a dense tensor");
}

TEST(Onnx, ConstantNodesBecomeConstants) {
  Model m = Model::add();
  using A = onnx::AttributeProto;
  auto constant = [&](const char* out, const char* attr, A::AttributeType type) -> A& {
    return add_attr(add_node(m.g(), "Constant", {}, {out}), attr, type);
  };
  constant("i", "value_int", A::INT).set_i(3);
  constant("f", "value_float", A::FLOAT).set_f(0.5f);
  constant("is", "value_ints", A::INTS).add_ints(4);
  constant("fs", "value_floats", A::FLOATS);
  constant("s", "value_string", A::STRING).set_s("text");
  constant("ss", "value_strings", A::STRINGS).add_strings("text");
  auto* t = constant("t", "value", A::TENSOR).mutable_t();
  t->set_data_type(3);
  t->set_raw_data(std::string(1, '\x7f'));
  auto g = m.load();
  EXPECT_EQ(g->nodes.size(), 1u);
  auto c = [&](const char* name) -> const Constant& { return *g->info(g->find_tensor(name)).constant; };
  EXPECT_EQ(c("i").as<int64_t>()[0], 3);
  EXPECT_EQ(c("f").as<float>()[0], 0.5f);
  EXPECT_EQ(c("is").dims, std::vector<int64_t>{1});
  EXPECT_EQ(c("fs").dims, std::vector<int64_t>{0});
  EXPECT_EQ(c("s").strings[0], "text");
  EXPECT_EQ(c("ss").dims.size(), 1u);
  EXPECT_EQ(c("t").as<int8_t>()[0], 127);
}

TEST(Onnx, NodesOutOfOrderAreSorted) {
  Model m;
  add_input(m.g(), "x", {4});
  add_node(m.g(), "Relu", {"b"}, {"c"}, "last");
  add_node(m.g(), "Relu", {"a"}, {"b"}, "middle");
  add_node(m.g(), "Relu", {"x"}, {"a"}, "first");
  add_output(m.g(), "c");
  auto g = m.load();
  EXPECT_EQ(g->nodes[0].name, "first");
  EXPECT_EQ(g->nodes[2].name, "last");
}

TEST(Onnx, OldModelsWithoutImportsUseOpset1) {
  Model m = Model::add();
  m.proto.clear_opset_import();
  m.proto.set_ir_version(2);
  set_ints(add_node(m.g(), "Reshape", {"y"}, {"z"}), "shape", {2, 2});
  auto g = m.load();
  EXPECT_EQ(g->nodes[1].inputs.size(), 2u);  // the shape is an operand now
}

TEST(Onnx, MetadataIsKept) {
  Model m = Model::add();
  auto* p = m.proto.add_metadata_props();
  p->set_key("author");
  p->set_value("me");
  EXPECT_EQ(m.load()->metadata.at("author"), "me");
}

}  // namespace
}  // namespace ingot
