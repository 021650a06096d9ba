// Groups of graphs in *.txt beside this file. Every spelling of a group must become the same graph; every near miss
// must not become the node it is nearly. Each is a test of its own.
//
//   group gelu_erf
//   only gelu                     the fusions that run (all, when not given)
//   inputs x: f32[2, seq, 64]
//   weights w: f32[64]
//   expect:
//     y = Gelu(x) {approximate: "none"}
//   spelling:
//     y = Mul(Mul(x, 0.5), Add(Erf(Div(x, 1.41421356)), 1.0))
//   not Gelu:
//     y = Mul(Mul(x, 0.6), Add(Erf(Div(x, 1.41421356)), 1.0))
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "compiler/compiler.h"
#include "graph_text.h"
#include "matcher/fusion.h"

namespace ingot::test {
namespace {

struct Case {
  std::string group, name, file;
  int line = 0;
  std::vector<std::string> only, inputs, weights;
  std::string nodes;
  std::string expected;  // of a spelling
  std::string without;   // of a near miss: the operator that must not appear
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> out;
  int depth = 0;
  std::string item;
  for (char c : text + separator) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c != separator || depth > 0) {
      if (!(item.empty() && c == ' ')) item += c;
    } else if (!item.empty()) {
      out.push_back(std::move(item));
      item.clear();
    }
  }
  return out;
}

// Reads one file into its cases.
class CaseReader {
 public:
  explicit CaseReader(const std::filesystem::path& path) : path_(path) {}

  std::vector<Case> read() {
    std::ifstream in(path_);
    std::string line;
    for (line_ = 1; std::getline(in, line); line_++) read_line(line);
    flush();
    return std::move(cases_);
  }

 private:
  void read_line(const std::string& line) {
    if (line.empty() || line[0] == '#') return;
    if (line[0] == ' ') {
      body_ += line + "\n";
      return;
    }
    flush();
    std::istringstream words(line);
    std::string first, rest;
    words >> first;
    std::getline(words, rest);
    if (first == "group") {
      group_ = Case{};
      group_.file = path_.stem().string();
      group_.group = split(rest, ' ').at(0);
      count_ = 0;
    } else if (first == "only") {
      group_.only = split(rest, ',');
    } else if (first == "inputs") {
      group_.inputs = split(rest, ',');
    } else if (first == "weights") {
      group_.weights = split(rest, ',');
    } else {
      section_ = first + rest;
    }
  }

  void flush() {
    if (section_ == "expect:") {
      group_.expected = trimmed(body_);
    } else if (!section_.empty()) {
      Case c = group_;
      c.nodes = body_;
      c.line = line_;
      c.name = c.group + "_" + std::to_string(count_++);
      if (section_.starts_with("not ")) c.without = section_.substr(4, section_.size() - 5);
      cases_.push_back(std::move(c));
    }
    section_.clear();
    body_.clear();
  }

  static std::string trimmed(const std::string& body) {
    std::istringstream in(body);
    std::string line, out;
    while (std::getline(in, line)) out += line.substr(line.find_first_not_of(' ')) + "\n";
    return out;
  }

  std::filesystem::path path_;
  std::vector<Case> cases_;
  Case group_;
  std::string section_, body_;
  int line_ = 0, count_ = 0;
};

class FusionCase : public ::testing::Test {
 public:
  explicit FusionCase(Case c) : case_(std::move(c)) {}
  void TestBody() override {
    Graph g;
    g.name = case_.name;
    for (const auto& text : case_.inputs) declare_input(g, text);
    for (const auto& text : case_.weights) declare_weight(g, text);
    parse_nodes(g, case_.nodes);
    verify(g);
    CompileOptions options;
    if (!case_.only.empty())
      for (const Fusion& f : FusionRegistry::get().all())
        options.patterns[f.name] = std::count(case_.only.begin(), case_.only.end(), f.name) > 0;
    optimise(g, options);
    verify(g);
    const std::string text = print_nodes(g);
    if (case_.without.empty())
      EXPECT_EQ(text, case_.expected) << case_.file << ".txt, before line " << case_.line;
    else
      EXPECT_EQ(text.find(case_.without + "("), std::string::npos)
          << case_.file << ".txt, before line " << case_.line << "\n"
          << text;
  }

 private:
  Case case_;
};

}  // namespace

const bool registered = [] {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(INGOT_FUSION_TESTS))
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const auto& file : files)
    for (Case& c : CaseReader(file).read())
      ::testing::RegisterTest(("Fusion_" + c.file).c_str(), c.name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                              [c] { return new FusionCase(c); });
  return true;
}();

}  // namespace ingot::test
