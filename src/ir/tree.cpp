#include "ir/tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <charconv>
#include <istream>
#include <streambuf>
#include <unordered_set>

namespace ingot {
namespace {

constexpr size_t kMaxSize = size_t{256} << 20;
constexpr size_t kMaxDepth = 400;  // a subgraph takes five levels

constexpr const char* kKinds[] = {"nothing", "a value", "a list", "a map"};

struct ViewBuffer : std::streambuf {
  explicit ViewBuffer(std::string_view s) {
    char* begin = const_cast<char*>(s.data());
    setg(begin, begin, begin + s.size());
  }
};

class TreeMaker : public YAML::EventHandler {
 public:
  IrTree root;

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(mark, "", anchor, IrTree::Null); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { refuse(mark, "aliases"); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    if (IrTree* t = add(mark, tag, anchor, IrTree::Scalar, &value)) t->quoted = tag == "!";
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, IrTree::List);
  }
  void OnSequenceEnd() override { stack_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, IrTree::Map);
  }
  void OnMapEnd() override {
    const IrTree& map = *stack_.back().tree;
    std::unordered_set<std::string_view> seen;
    for (size_t i = 0; i < map.keys.size(); i++)
      if (!seen.insert(map.keys[i]).second) map.items[i].fail("the key '{}' is given twice", map.keys[i]);
    stack_.pop_back();
  }

 private:
  struct Level {
    IrTree* tree;
    bool key_read = false;  // of a map: the next event is a value
  };

  [[noreturn]] static void refuse(const YAML::Mark& mark, const char* what) {
    invalid_model("line {}: {} are not part of the format", mark.line + 1, what);
  }

  // Where the event belongs; nullptr when it was a key.
  IrTree* add(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, IrTree::Kind kind,
              const std::string* text = nullptr) {
    if (anchor != 0) refuse(mark, "anchors");
    if (!tag.empty() && tag != "?" && tag != "!") refuse(mark, "tags");
    IrTree* at = &root;
    if (!stack_.empty()) {
      Level& level = stack_.back();
      if (level.tree->kind == IrTree::Map && !level.key_read) {
        if (kind != IrTree::Scalar) invalid_model("line {}: a key of a map must be a name", mark.line + 1);
        level.tree->keys.push_back(*text);
        level.key_read = true;
        return nullptr;
      }
      level.key_read = false;
      at = &level.tree->items.emplace_back();
    }
    at->kind = kind;
    at->line = mark.line + 1;
    if (text) at->text = *text;
    return at;
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, IrTree::Kind kind) {
    if (stack_.size() >= kMaxDepth) invalid_model("line {}: nested too deeply", mark.line + 1);
    stack_.push_back({add(mark, tag, anchor, kind)});
  }

  std::vector<Level> stack_;
};

}  // namespace

IrTree parse_ir_tree(std::string_view yaml) try {
  if (yaml.size() > kMaxSize) invalid_model("has {} bytes; the limit is {}", yaml.size(), kMaxSize);
  ViewBuffer buffer(yaml);
  std::istream stream(&buffer);
  YAML::Parser parser(stream);
  TreeMaker maker;
  if (!parser.HandleNextDocument(maker)) invalid_model("is empty");
  TreeMaker rest;
  if (parser.HandleNextDocument(rest)) invalid_model("line {}: holds a second document", rest.root.line);
  return std::move(maker.root);
} catch (const YAML::Exception& e) {
  invalid_model("line {}: is not valid yaml: {}", e.mark.line + 1, e.msg);
}

const IrTree* IrTree::find(std::string_view key) const {
  expect(Map);
  auto it = std::find(keys.begin(), keys.end(), key);
  return it == keys.end() ? nullptr : &items[static_cast<size_t>(it - keys.begin())];
}

const IrTree& IrTree::need(std::string_view key) const {
  const IrTree* t = find(key);
  if (!t) fail("the key '{}' is missing", key);
  return *t;
}

void IrTree::only(std::initializer_list<std::string_view> known) const {
  expect(Map);
  for (size_t i = 0; i < keys.size(); i++)
    if (std::find(known.begin(), known.end(), keys[i]) == known.end())
      items[i].fail("the key '{}' is not known", keys[i]);
}

const IrTree& IrTree::expect(Kind wanted) const {
  if (kind != wanted) fail("{} where {} is expected", kKinds[kind], kKinds[wanted]);
  return *this;
}

const std::string& IrTree::name() const { return expect(Scalar).text; }

int64_t IrTree::integer() const {
  expect(Scalar);
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (quoted || error != std::errc() || end != text.data() + text.size()) fail("'{}' is not an integer", text);
  return value;
}

std::vector<std::string> IrTree::names() const {
  expect(List);
  std::vector<std::string> out;
  out.reserve(items.size());
  for (const IrTree& t : items) out.push_back(t.name());
  return out;
}

}  // namespace ingot
