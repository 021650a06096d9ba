// A fusion: a formula, the patterns that recognise it, and the rewrite. Each stands alone in a file of src/fusions/,
// <name>.cpp, which defines `void register_<name>(FusionRegistry&)`; the build collects the folder into the registry.
// compiler/optimise.cpp lists them in the order they run.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "matcher/pattern.h"

namespace ingot {

// Told of every place a fusion looked like matching: the node, and "matched" or what stopped it.
using Explain = std::function<void(const std::string& node, const std::string& outcome)>;

struct Fusion {
  std::string name;
  std::string formula;
  // Tried in order at every node, the last nodes first, so that the largest match wins.
  std::vector<match::Pattern> patterns;
  // Checks what a pattern cannot say and rewrites: the new node replaces the root. Returns "" when done, else why not.
  // Values inside the match are already known to be read by the match only.
  std::string (*rewrite)(Editor&, const match::Match&) = nullptr;
  // For what no pattern of fixed size describes; instead of patterns and rewrite.
  void (*pass)(Editor&, const Explain&) = nullptr;
};

class FusionRegistry;
extern "C" void (*const ingot_fusions_registrars[])(
    FusionRegistry&);  // generated: every register_<file> of src/fusions

class FusionRegistry {
 public:
  static const FusionRegistry& get();
  void add(Fusion f) { fusions_.push_back(std::move(f)); }
  const std::vector<Fusion>& all() const { return fusions_; }  // by the names of their files
  const Fusion* find(std::string_view name) const;             // nullptr when there is none

 private:
  std::vector<Fusion> fusions_;
};

void run_fusion(Graph&, const Fusion&, const Explain& explain = {});

// Replaces the root of the match; origins are those of all nodes the match stands for, which are erased.
Editor::Handle replace_match(Editor&, const match::Match&, Node with);
// The same for a function of the match's "x", unless the result has another shape than x: then why not.
std::string replace_function(Editor&, const match::Match&, Node with);
// fuse(h) at every node that is wanted, the last first; it returns "" when done, else why not.
void fuse_each(Editor&, const Explain&, bool (*wanted)(const Node&), std::string (*fuse)(Editor&, Editor::Handle));
// Origins of several nodes, in order and without repetition.
std::vector<std::string> joined_origins(const Editor&, const std::vector<Editor::Handle>&);

}  // namespace ingot
