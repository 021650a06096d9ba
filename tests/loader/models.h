// Writes small ONNX models, good and bad, for the loader's tests.
#pragma once
#include <cstring>
#include <initializer_list>

#include "graphs.h"
#include "loader/onnx_loader.h"
#include "onnx.pb.h"

namespace ingot::testing {

using Names = std::initializer_list<const char*>;

inline onnx::AttributeProto& add_attr(onnx::NodeProto& n, const std::string& name,
                                      onnx::AttributeProto::AttributeType type) {
  auto* a = n.add_attribute();
  a->set_name(name);
  a->set_type(type);
  return *a;
}
inline void set_int(onnx::NodeProto& n, const std::string& name, int64_t v) {
  add_attr(n, name, onnx::AttributeProto::INT).set_i(v);
}
inline void set_ints(onnx::NodeProto& n, const std::string& name, std::initializer_list<int64_t> v) {
  auto& a = add_attr(n, name, onnx::AttributeProto::INTS);
  for (int64_t i : v) a.add_ints(i);
}
inline onnx::GraphProto& set_graph(onnx::NodeProto& n, const std::string& name) {
  return *add_attr(n, name, onnx::AttributeProto::GRAPH).mutable_g();
}

template <class Owner>
onnx::NodeProto& add_node(Owner& g, const std::string& op, Names inputs, Names outputs, const std::string& name = "") {
  auto* n = g.add_node();
  n->set_op_type(op);
  if (!name.empty()) n->set_name(name);
  for (const char* i : inputs) n->add_input(i);
  for (const char* o : outputs) n->add_output(o);
  return *n;
}

inline void set_type(onnx::ValueInfoProto& v, const std::string& name, std::initializer_list<int64_t> dims,
                     int type = 1) {
  v.set_name(name);
  auto* t = v.mutable_type()->mutable_tensor_type();
  t->set_elem_type(type);
  t->mutable_shape();
  for (int64_t d : dims) t->mutable_shape()->add_dim()->set_dim_value(d);
}
inline void add_input(onnx::GraphProto& g, const std::string& name, std::initializer_list<int64_t> dims, int type = 1) {
  set_type(*g.add_input(), name, dims, type);
}
inline void add_output(onnx::GraphProto& g, const std::string& name) { g.add_output()->set_name(name); }

inline onnx::TensorProto& add_tensor(onnx::GraphProto& g, const std::string& name, int type,
                                     std::initializer_list<int64_t> dims) {
  auto* t = g.add_initializer();
  t->set_name(name);
  t->set_data_type(type);
  for (int64_t d : dims) t->add_dims(d);
  return *t;
}
inline void set_raw(onnx::TensorProto& t, size_t bytes, char fill = 1) { t.set_raw_data(std::string(bytes, fill)); }

struct Model {
  onnx::ModelProto proto;

  explicit Model(int64_t opset = 21) {
    proto.set_ir_version(8);
    auto* import = proto.add_opset_import();
    import->set_domain("");
    import->set_version(opset);
    proto.mutable_graph()->set_name("g");
  }
  onnx::GraphProto& g() { return *proto.mutable_graph(); }

  // y = x + w, with w [n] of f32
  static Model add(int64_t n = 4) {
    Model m;
    add_input(m.g(), "x", {n});
    set_raw(add_tensor(m.g(), "w", 1, {n}), static_cast<size_t>(n) * 4);
    add_node(m.g(), "Add", {"x", "w"}, {"y"}, "add");
    add_output(m.g(), "y");
    return m;
  }

  std::string save(const Folder& folder, const std::string& name = "m.onnx") const {
    return folder.write(name, proto.SerializeAsString());
  }
  GraphPtr load() const {
    Folder folder;
    return load_onnx(save(folder));
  }
  // The text of the error that loading gives; it must name the file.
  std::string error(ErrorKind kind = ErrorKind::InvalidModel) const {
    Folder folder;
    const std::string path = save(folder);
    const std::string text = error_of(kind, [&] { load_onnx(path); });
    EXPECT_TRUE(text.starts_with(path + ": ")) << text;
    return text;
  }
};

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

}  // namespace ingot::testing
