// From the graph as loaded to the graph as planned, as one list. Formulas are recognised before regions are formed:
// once Gelu or LayerNormalization is one node, what is left over is either linear, element-wise or a reduction.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "base/error.h"
#include "compiler/compiler.h"
#include "emitter/ir_folder.h"
#include "matcher/fusion.h"
#include "passes/passes.h"

namespace ingot {
namespace {

constexpr int kRegionPriority = 100;  // fusions from here on swallow what the others look for
constexpr int kMaxFoldRounds = 4;     // each finds shapes that the one before made known

class Pipeline {
 public:
  Pipeline(Graph& graph, const CompileOptions& options, FusionReport* report)
      : graph_(graph), options_(options), report_(report), dump_(std::getenv("INGOT_DUMP")) {}

  void pass(const std::string& name, void (*run)(Graph&)) {
    run(graph_);
    check(name);
  }

  // Shapes make values known and values make shapes known.
  void fold(FoldWeights weights = FoldWeights::kNone) {
    pass("infer_shapes", infer_shapes);
    for (int round = 0; round < kMaxFoldRounds; round++) {
      const bool folded = fold_constants(graph_, weights), inlined = inline_if(graph_);
      if (!folded && !inlined) break;
      pass("infer_shapes", infer_shapes);
    }
    check("fold_constants");
  }

  void formulas() {
    for (const Fusion& f : FusionRegistry::get().all())
      if (f.priority < kRegionPriority) fusion(f);
  }
  void regions() {
    for (const Fusion& f : FusionRegistry::get().all())
      if (f.priority >= kRegionPriority) fusion(f);
  }

 private:
  void fusion(const Fusion& f) {
    auto it = options_.patterns.find(f.name);
    if (it != options_.patterns.end() && !it->second) return;
    Explain explain;
    if (report_)
      explain = [&](const std::string& node, const std::string& outcome) {
        report_->entries.push_back({f.name, node, outcome});
      };
    run_fusion(graph_, f, explain);
    check(f.name);
  }

  void check([[maybe_unused]] const std::string& name) {
#ifndef NDEBUG
    verify(graph_);
#endif
    if (!dump_) return;
    std::filesystem::create_directories(dump_);
    std::ofstream out(std::filesystem::path(dump_) / fmt::format("{:02}_{}.yaml", step_++, name));
    out << to_yaml(graph_);
  }

  Graph& graph_;
  const CompileOptions& options_;
  FusionReport* report_;
  const char* dump_;
  int step_ = 0;
};

void optimise_subgraphs(Graph& graph, const CompileOptions& options, FusionReport* report) {
  for (Node& n : graph.nodes)
    for (auto& [key, value] : n.attrs)
      if (auto* sub = std::get_if<GraphPtr>(&value)) {
        auto copy = std::make_shared<Graph>(**sub);
        in_body(n, [&] {
          optimise(*copy, options, report);
          *sub = copy;
        });
      }
}

// A name that is no fusion is a mistake of the caller, not a wish that is already granted.
void check_names(const CompileOptions& options) {
  for (const auto& [name, on] : options.patterns) {
    std::string known;
    bool found = false;
    for (const Fusion& f : FusionRegistry::get().all()) {
      found |= f.name == name;
      known += (known.empty() ? "" : ", ") + f.name;
    }
    if (!found) throw Error(ErrorKind::InvalidInput, "there is no fusion named '" + name + "'", "there are: " + known);
  }
}

}  // namespace

void optimise(Graph& graph, const CompileOptions& options, FusionReport* report) {
  check_names(options);
  Pipeline p(graph, options, report);
  if (options.opt_level == 0) {
    p.pass("infer_shapes", infer_shapes);
    return;
  }
  // Clean up: fewer nodes, canonical spellings, constants where values are known.
  p.pass("merge_common", merge_common);
  p.fold();
  p.pass("simplify", simplify);
  p.fold();
  p.pass("fold_batch_norm", fold_batch_norm);
  p.pass("fold_pad", fold_pad);
  p.pass("simplify", simplify);
  p.pass("merge_common", merge_common);

  // Recognise formulas; without the reshapes exporters put around linear layers, more of them are seen.
  p.formulas();
  p.pass("expand_quantization", expand_quantization);
  p.pass("hoist_reshape", hoist_reshape);
  p.pass("simplify", simplify);

  // Convolutions work on NHWC; a normalization over channels is then one over the last axis.
  p.pass("sink_squeeze", sink_squeeze);
  p.pass("channels_last", channels_last);
  p.pass("simplify", simplify);
  p.fold();
  p.formulas();
  p.pass("merge_common", merge_common);

  // Form regions: epilogues, reductions, element-wise loops.
  p.regions();
  p.fold(FoldWeights::kAll);
  optimise_subgraphs(graph, options, report);
}

}  // namespace ingot
