// The ONNX loader on files that are not as they should be: each is refused, with file, place and reason.
#include <sys/stat.h>

#include <random>

#include "models.h"

namespace ingot {
namespace {

using namespace testing;
namespace fs = std::filesystem;

TEST(Hostile, FilesThatAreNotModels) {
  Folder f;
  auto text = [&](const std::string& bytes) {
    return error_of(ErrorKind::InvalidModel, [&] { load_onnx(f.write("m", bytes)); });
  };
  EXPECT_HAS(text(""), "the file is empty");
  EXPECT_HAS(text("hello, world: this is a text file"), "not");
  EXPECT_HAS(text(std::string(5000, '\0')), "not");
  EXPECT_HAS(text(std::string(5000, '\xff')), "not");
  EXPECT_HAS(text("\x08\x08"), "has no graph");
  EXPECT_HAS(error_of(ErrorKind::Io, [&] { load_onnx(f.path); }), "is a directory");
  EXPECT_HAS(error_of(ErrorKind::Io, [&] { load_onnx(f / "none"); }), "No such file");
  ASSERT_EQ(::mkfifo((f / "fifo").c_str(), 0600), 0);
  EXPECT_HAS(error_of(ErrorKind::Io, [&] { load_onnx(f / "fifo"); }), "is not a regular file");
}

Model everything() {
  Model m = Model::add(300);
  add_input(m.g(), "cond", {}, 9);
  auto& n = add_node(m.g(), "If", {"cond"}, {"z"}, "if");
  for (const char* b : {"then_branch", "else_branch"}) {
    auto& g = set_graph(n, b);
    add_node(g, "Neg", {"y"}, {"n"});
    add_output(g, "n");
    set_raw(add_tensor(g, "inside", 2, {1200}), 1200);
  }
  auto* f = m.proto.add_functions();
  f->set_name("f");
  f->set_domain("local");
  f->add_input("a");
  f->add_output("r");
  add_attr(add_node(*f, "Neg", {"a"}, {"r"}), "k", onnx::AttributeProto::INT).set_ref_attr_name("k");
  auto& call = add_node(m.g(), "f", {"z"}, {"q"});
  call.set_domain("local");
  set_ints(call, "k", {1, 2, 3});
  m.g().add_value_info()->CopyFrom(m.g().input(0));
  m.g().mutable_value_info(0)->set_name("y");
  add_tensor(m.g(), "typed", 1, {1}).add_float_data(1);
  add_output(m.g(), "q");
  return m;
}

// Loads or throws Error; anything else fails the test.
void attempt(const Folder& f, const std::string& bytes) {
  try {
    load_onnx(f.write("m.onnx", bytes));
  } catch (const Error&) {
  }
}

TEST(Hostile, TruncatedAnywhere) {
  Folder f;
  const std::string good = everything().proto.SerializeAsString();
  load_onnx(f.write("m.onnx", good));
  for (size_t n = 0; n < good.size(); n += 41)
    error_of(ErrorKind::InvalidModel, [&] { load_onnx(f.write("m.onnx", good.substr(0, n))); });
}

TEST(Hostile, BytesChanged) {
  Folder f;
  const std::string good = everything().proto.SerializeAsString();
  std::mt19937 random(1);
  for (size_t i = 0; i < good.size(); i++) {
    if (good[i] == 1 && i + 1 < good.size() && good[i + 1] == 1) continue;  // weights
    std::string bad = good;
    bad[i] = random() % 2 ? '\xff' : static_cast<char>(random());
    attempt(f, bad);
  }
  for (int i = 0; i < 200; i++) {
    std::string noise(random() % 300, '\0');
    for (char& c : noise) c = static_cast<char>(random());
    attempt(f, noise);
    attempt(f, good.substr(0, random() % good.size()) + noise + good.substr(random() % good.size()));
  }
}

struct Case {
  const char* name;
  void (*spoil)(Model&);
  const char* message;
  ErrorKind kind = ErrorKind::InvalidModel;
};

const Case kCases[] = {
    {"opset too new", [](Model& m) { m.proto.mutable_opset_import(0)->set_version(29); },
     "uses opset 29; the newest supported is 28", ErrorKind::Unsupported},
    {"opset zero", [](Model& m) { m.proto.mutable_opset_import(0)->set_version(0); }, "has version 0"},
    {"no opset", [](Model& m) { m.proto.clear_opset_import(); }, "does not say which opset"},
    {"no outputs", [](Model& m) { m.g().clear_output(); }, "the graph has no outputs"},
    {"undefined output", [](Model& m) { m.g().mutable_output(0)->set_name("q"); }, "tensor 'q' is not defined"},
    {"output twice", [](Model& m) { add_output(m.g(), "y"); }, "graph output 'y' is listed twice"},
    {"unnamed output", [](Model& m) { m.g().mutable_output(0)->clear_name(); }, "a graph output has no name"},
    {"undefined operand", [](Model& m) { m.g().mutable_node(0)->set_input(0, "q"); },
     "node 'add' (Add): tensor 'q' is not defined"},
    {"input twice", [](Model& m) { add_input(m.g(), "x", {4}); }, "graph input 'x' is listed twice"},
    {"input without name", [](Model& m) { m.g().mutable_input(0)->clear_name(); }, "a graph input has no name"},
    {"input without type", [](Model& m) { m.g().mutable_input(0)->clear_type(); },
     "graph input 'x' has no element type"},
    {"input of unknown type",
     [](Model& m) { m.g().mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(99); },
     "'x' has the unknown element type 99"},
    {"input with a negative dim",
     [](Model& m) {
       m.g().mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_value(
           -2);
     },
     "'x' has the negative dimension -2"},
    {"input of overflowing size",
     [](Model& m) {
       auto* s = m.g().mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape();
       for (int i = 0; i < 3; i++) s->add_dim()->set_dim_value(INT64_MAX / 2);
     },
     "'x' a size overflows"},
    {"sequence of nothing", [](Model& m) { m.g().mutable_input(0)->mutable_type()->mutable_sequence_type(); },
     "graph input 'x' has no element type"},
    {"sequence of maps",
     [](Model& m) {
       m.g().mutable_input(0)->mutable_type()->mutable_sequence_type()->mutable_elem_type()->mutable_map_type();
     },
     "'x' is of map type inside", ErrorKind::Unsupported},
    {"sparse output", [](Model& m) { m.g().mutable_output(0)->mutable_type()->mutable_sparse_tensor_type(); },
     "'y' is of sparse tensor type", ErrorKind::Unsupported},
    {"initializer twice", [](Model& m) { m.g().add_initializer()->CopyFrom(m.g().initializer(0)); },
     "initializer 'w' has the name of another tensor"},
    {"initializer without name", [](Model& m) { m.g().mutable_initializer(0)->clear_name(); },
     "initializer has no name"},
    {"result named as an input",
     [](Model& m) {
       add_input(m.g(), "u", {4});
       add_node(m.g(), "Neg", {"x"}, {"u"});
     },
     "result 'u' has the name of another tensor"},
    {"result made twice", [](Model& m) { add_node(m.g(), "Neg", {"x"}, {"y"}, "neg"); },
     "tensor 'y' is made twice, by node 'add' and by node 'neg'"},
    {"no operator type", [](Model& m) { m.g().mutable_node(0)->clear_op_type(); }, "has no operator type"},
    {"a cycle",
     [](Model& m) {
       add_node(m.g(), "Neg", {"b"}, {"a"}, "one");
       add_node(m.g(), "Neg", {"a"}, {"b"}, "two");
     },
     "a cycle through node 'one' (Neg)"},
    {"a node that reads itself", [](Model& m) { add_node(m.g(), "Neg", {"a"}, {"a"}, "one"); },
     "a cycle through node 'one'"},
    {"too little data", [](Model& m) { m.g().mutable_initializer(0)->set_raw_data("123"); },
     "tensor 'w' is f32 [4], which takes 16 bytes, but has 3"},
    {"too much data", [](Model& m) { m.g().mutable_initializer(0)->set_raw_data(std::string(5000, 'x')); },
     "tensor 'w' is f32 [4], which takes 16 bytes, but has 5000"},
    {"no data", [](Model& m) { m.g().mutable_initializer(0)->clear_raw_data(); },
     "tensor 'w' is f32 [4], which takes 4 entries of float_data, but has 0"},
    {"negative dim", [](Model& m) { m.g().mutable_initializer(0)->set_dims(0, -4); },
     "tensor 'w' has the negative dimension -4"},
    {"overflowing dims",
     [](Model& m) {
       for (int i = 0; i < 4; i++) m.g().mutable_initializer(0)->add_dims(int64_t{1} << 40);
     },
     "a size overflows"},
    {"overflow behind a zero",
     [](Model& m) {
       m.g().mutable_initializer(0)->add_dims(0);
       for (int i = 0; i < 4; i++) m.g().mutable_initializer(0)->add_dims(int64_t{1} << 40);
     },
     "a size overflows"},
    {"a hundred dims",
     [](Model& m) {
       for (int i = 0; i < 100; i++) m.g().mutable_initializer(0)->add_dims(1);
     },
     "tensor 'w' has 101 dimensions"},
    {"unknown dtype", [](Model& m) { m.g().mutable_initializer(0)->set_data_type(77); },
     "tensor 'w' has the unknown element type 77"},
    {"no dtype", [](Model& m) { m.g().mutable_initializer(0)->clear_data_type(); }, "tensor 'w' has no element type"},
    {"a dtype we do not have", [](Model& m) { m.g().mutable_initializer(0)->set_data_type(27); }, "FLOAT6E2M3",
     ErrorKind::Unsupported},
    {"segments", [](Model& m) { m.g().mutable_initializer(0)->mutable_segment()->set_begin(0); }, "stored in segments",
     ErrorKind::Unsupported},
    {"a forged cut",
     [](Model& m) {
       m.g().mutable_initializer(0)->mutable_segment()->set_begin(~int64_t{1000000});
       m.g().mutable_initializer(0)->mutable_segment()->set_end(16);
     },
     "has data outside the file"},
    {"a forged cut of negative size",
     [](Model& m) {
       m.g().mutable_initializer(0)->mutable_segment()->set_begin(INT64_MIN);
       m.g().mutable_initializer(0)->mutable_segment()->set_end(INT64_MIN);
     },
     "has data outside the file"},
    {"raw strings", [](Model& m) { m.g().mutable_initializer(0)->set_data_type(8); }, "holds strings as raw bytes"},
    {"attribute twice",
     [](Model& m) {
       set_int(*m.g().mutable_node(0), "a", 1);
       set_int(*m.g().mutable_node(0), "a", 1);
     },
     "attribute 'a' is given twice"},
    {"attribute without name", [](Model& m) { set_int(*m.g().mutable_node(0), "", 1); }, "an attribute has no name"},
    {"attribute of no type", [](Model& m) { m.g().mutable_node(0)->add_attribute()->set_name("a"); },
     "attribute 'a' has no type and no value"},
    {"attribute of types", [](Model& m) { add_attr(*m.g().mutable_node(0), "a", onnx::AttributeProto::TYPE_PROTO); },
     "attribute 'a' is of type TYPE_PROTO", ErrorKind::Unsupported},
    {"attribute without its graph",
     [](Model& m) { add_attr(*m.g().mutable_node(0), "a", onnx::AttributeProto::GRAPH); },
     "attribute 'a' has no graph"},
    {"attribute without its tensor",
     [](Model& m) { add_attr(*m.g().mutable_node(0), "a", onnx::AttributeProto::TENSOR); },
     "attribute 'a' has no tensor"},
    {"reference outside a function",
     [](Model& m) { add_attr(*m.g().mutable_node(0), "a", onnx::AttributeProto::INT).set_ref_attr_name("b"); },
     "attribute 'a' refers to 'b' outside a function"},
    {"constant without value", [](Model& m) { add_node(m.g(), "Constant", {}, {"c"}, "c"); },
     "node 'c' (Constant): has no value"},
    {"constant with two values",
     [](Model& m) {
       auto& n = add_node(m.g(), "Constant", {}, {"c"}, "c");
       set_int(n, "value_int", 1);
       set_ints(n, "value_ints", {1});
     },
     "has more than one value"},
    {"constant of the wrong kind", [](Model& m) { set_int(add_node(m.g(), "Constant", {}, {"c"}), "value", 1); },
     "attribute 'value' has the wrong type"},
    {"name that is not UTF-8", [](Model& m) { add_node(m.g(), "Neg", {"x"}, {"\xff\xfe"}); }, "not UTF-8"},
};

TEST(Hostile, EachWayToBeWrongHasItsMessage) {
  for (const Case& c : kCases) {
    Model m = Model::add();
    c.spoil(m);
    const std::string text = m.error(c.kind);
    EXPECT_NE(text.find(c.message), std::string::npos) << c.name << "\n  " << text;
  }
}

TEST(Hostile, ManyEqualNamesTakeNoTime) {
  Model m = Model::add();
  for (int i = 0; i < 20000; i++) {
    auto& n = *m.g().add_node();
    n.set_op_type("Neg");
    n.set_name("same");
    n.add_input("x");
    n.add_output("o" + std::to_string(i));
  }
  EXPECT_EQ(m.load()->nodes.size(), 20001u);
}

// ---- External data

void external(onnx::TensorProto& t, const std::string& location, const std::string& offset = "",
              const std::string& length = "") {
  t.clear_raw_data();
  t.set_data_location(onnx::TensorProto::EXTERNAL);
  auto add = [&](const char* key, const std::string& value) {
    auto* e = t.add_external_data();
    e->set_key(key);
    e->set_value(value);
  };
  add("location", location);
  if (!offset.empty()) add("offset", offset);
  if (!length.empty()) add("length", length);
}

Model with_external(const std::string& location, const std::string& offset = "", const std::string& length = "") {
  Model m = Model::add();
  external(*m.g().mutable_initializer(0), location, offset, length);
  return m;
}

TEST(External, IsMapped) {
  Folder f;
  f.write("w.bin", std::string(64, 'a') + std::string(16, 'b'));
  for (const char* location : {"w.bin", "./w.bin", "sub/../w.bin"}) {
    fs::create_directories(f / "sub");
    auto g = load_onnx(with_external(location, "64", "16").save(f));
    auto c = g->info(g->find_tensor("w")).constant;
    EXPECT_EQ(c->bytes.size(), 16u);
    EXPECT_EQ(static_cast<char>(c->bytes[15]), 'b');
  }
  auto g = load_onnx(with_external("w.bin").save(f));  // from the start, as long as needed
  EXPECT_EQ(static_cast<char>(g->info(g->find_tensor("w")).constant->bytes[15]), 'a');
}

TEST(External, WhatIsWrongIsNamed) {
  Folder outside, f;
  f.write("w.bin", std::string(64, 'a'));
  outside.write("w.bin", std::string(64, 'a'));
  fs::create_symlink(outside / "w.bin", f / "link.bin");
  fs::create_directory_symlink(outside.path, f / "links");
  ASSERT_EQ(::mkfifo((f / "fifo").c_str(), 0600), 0);
  auto text = [&](const Model& m, ErrorKind kind = ErrorKind::InvalidModel) {
    return error_of(kind, [&] { load_onnx(m.save(f)); });
  };
  const std::string up = "../" + fs::path(outside.path).filename().string() + "/w.bin";
  EXPECT_HAS(text(with_external("none.bin"), ErrorKind::Io), "external data file 'none.bin' is missing");
  EXPECT_HAS(text(with_external("")), "no valid location");
  EXPECT_HAS(text(with_external(std::string("w.bin\0x", 7))), "no valid location");
  EXPECT_HAS(text(with_external(outside / "w.bin")), "absolute location");
  EXPECT_HAS(text(with_external(up)), "outside the model's folder");
  EXPECT_HAS(text(with_external("link.bin")), "outside the model's folder");
  EXPECT_HAS(text(with_external("links/w.bin")), "outside the model's folder");
  EXPECT_HAS(text(with_external("."), ErrorKind::InvalidModel), "outside");
  EXPECT_HAS(text(with_external("fifo"), ErrorKind::Io), "not a regular file");
  EXPECT_HAS(text(with_external("w.bin", "49")), "which has 64 bytes");
  EXPECT_HAS(text(with_external("w.bin", "9223372036854775807", "16")), "which has 64 bytes");
  EXPECT_HAS(text(with_external("w.bin", "0", "12")), "which takes 16 bytes, but has 12");
  EXPECT_HAS(text(with_external("w.bin", "-1")), "offset '-1'");
  EXPECT_HAS(text(with_external("w.bin", "0x10")), "offset '0x10'");
  EXPECT_HAS(text(with_external("w.bin", "0", "99999999999999999999")), "length '99999999999999999999'");
}

TEST(External, LinksOfADownloadCacheAreFollowed) {
  Folder root;
  fs::create_directories(root / "snapshots/abc/onnx");
  fs::create_directories(root / "blobs");
  root.write("blobs/1", std::string(16, 'a'));
  with_external("w.bin").save(root, "blobs/2");
  fs::create_symlink("../../../blobs/1", root / "snapshots/abc/onnx/w.bin");
  fs::create_symlink("../../../blobs/2", root / "snapshots/abc/onnx/m.onnx");
  EXPECT_TRUE(load_onnx(root / "snapshots/abc/onnx/m.onnx"));
  root.write("secret", std::string(16, 'a'));
  fs::remove(root / "snapshots/abc/onnx/w.bin");
  fs::create_symlink("../../../secret", root / "snapshots/abc/onnx/w.bin");
  error_of(ErrorKind::InvalidModel, [&] { load_onnx(root / "snapshots/abc/onnx/m.onnx"); });
}

TEST(External, ModelReachedThroughALink) {
  Folder real, f;
  real.write("w.bin", std::string(16, 'a'));
  fs::create_symlink(with_external("w.bin").save(real), f / "m.onnx");
  EXPECT_TRUE(load_onnx(f / "m.onnx"));
}

}  // namespace
}  // namespace ingot
