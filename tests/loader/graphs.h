// Comparing graphs, and temporary folders, for the tests of loader and emitter.
#pragma once
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "graph/graph.h"

namespace ingot::testing {

struct Folder {
  std::string path;
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ingot_test_XXXXXX").string();
    path = ::mkdtemp(pattern.data());
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::string operator/(const std::string& name) const { return path + "/" + name; }
  std::string write(const std::string& name, std::string_view bytes) const {
    std::ofstream(path + "/" + name, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path + "/" + name;
  }
};

inline std::string read_file(const std::string& path) {
  std::ifstream f(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(f), {}};
}

inline bool same(const ConstantPtr& a, const ConstantPtr& b) {
  if (!a || !b) return !a && !b;
  return a->dtype == b->dtype && a->dims == b->dims && a->strings == b->strings && a->bytes.size() == b->bytes.size() &&
         (a->bytes.empty() || std::memcmp(a->bytes.data(), b->bytes.data(), a->bytes.size()) == 0);
}

bool same(const Graph&, const Graph&);

inline bool same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }
inline bool same(const Attribute& a, const Attribute& b) {
  if (a.index() != b.index()) return false;
  if (auto* g = std::get_if<GraphPtr>(&a)) return same(**g, *std::get<GraphPtr>(b));
  if (auto* c = std::get_if<ConstantPtr>(&a)) return same(*c, std::get<ConstantPtr>(b));
  if (auto* f = std::get_if<float>(&a)) return same(*f, std::get<float>(b));
  return a == b;
}

inline bool same(const Node& a, const Node& b) {
  if (a.op != b.op || a.domain != b.domain || a.name != b.name || a.inputs != b.inputs || a.outputs != b.outputs ||
      a.origins != b.origins || a.attrs.size() != b.attrs.size())
    return false;
  for (const auto& [key, value] : a.attrs)
    if (!b.attrs.contains(key) || !same(value, b.attrs.at(key))) return false;
  return true;
}

inline bool same(const TensorInfo& a, const TensorInfo& b) {
  if (a.dtype != b.dtype || a.shape.has_value() != b.shape.has_value() || !same(a.constant, b.constant)) return false;
  return !a.shape || str(*a.shape) == str(*b.shape);
}

inline bool same(const Graph& a, const Graph& b) {
  if (a.name != b.name || a.inputs != b.inputs || a.outputs != b.outputs || a.metadata != b.metadata) return false;
  if (a.tensors.size() != b.tensors.size() || a.nodes.size() != b.nodes.size()) return false;
  for (size_t i = 0; i < a.tensors.size(); i++)
    if (a.tensors[i].name != b.tensors[i].name || !same(a.tensors[i].info, b.tensors[i].info)) return false;
  for (size_t i = 0; i < a.nodes.size(); i++)
    if (!same(a.nodes[i], b.nodes[i])) return false;
  return true;
}

// The text of the Error that `action` throws; fails the test when it throws none or one of another kind.
template <class F>
std::string error_of(ErrorKind kind, F&& action) {
  try {
    action();
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.kind()), static_cast<int>(kind)) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

}  // namespace ingot::testing
