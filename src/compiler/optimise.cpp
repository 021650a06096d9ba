// From the graph as loaded to the graph as planned, as one list. Formulas are recognised before clusters of
// element-wise nodes: once Gelu or LayerNormalization is one node, what is left over is either linear, element-wise or
// a reduction.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/stop.h"
#include "compiler/compiler.h"
#include "emitter/ir_folder.h"
#include "matcher/fusion.h"
#include "passes/passes.h"

namespace ingot {
namespace {

constexpr int kMaxFoldRounds = 4;  // each finds shapes that the one before made known

// The files of fusions/ in the order they run. Formulas first: one may be part of another, as Sigmoid is of Swish and
// Softmax of attention.
constexpr std::array kFormulas = {
    "quantized_product", "compressed_weights", "sigmoid",  "one_hot",   "gelu", "hard_swish", "mish", "swish",
    "softmax",           "layer_norm",         "rms_norm", "attention",
};
// These take whatever element-wise nodes they meet, parts of formulas too.
constexpr std::array kClusters = {"conv", "winograd", "matmul", "reduce", "elementwise", "table"};

class Pipeline {
 public:
  Pipeline(Graph& graph, const CompileOptions& options, FusionReport* report, FoldBudget& budget)
      : graph_(graph), options_(options), report_(report), budget_(budget), dump_(std::getenv("INGOT_DUMP")) {}

  void pass(const std::string& name, void (*run)(Graph&)) {
    check_stop();
    run(graph_);
    check(name);
  }

  // Shapes make values known and values make shapes known.
  void fold(FoldWeights weights = FoldWeights::kNone) {
    pass("infer_shapes", infer_shapes);
    for (int round = 0; round < kMaxFoldRounds; round++) {
      const bool folded = fold_constants(graph_, weights, &budget_), inlined = inline_if(graph_);
      if (!folded && !inlined) break;
      pass("infer_shapes", infer_shapes);
    }
    check("fold_constants");
  }

  void fusions(std::span<const char* const> names) {
    for (const char* name : names) fusion(*FusionRegistry::get().find(name));
  }

 private:
  void fusion(const Fusion& f) {
    auto it = options_.patterns.find(f.name);
    if (it != options_.patterns.end() && !it->second) return;
    check_stop();
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
  FoldBudget& budget_;  // shared by the graph and those in it
  const char* dump_;
  int step_ = 0;
};

bool has_subgraph(const Node& n) {
  return std::any_of(n.attrs.begin(), n.attrs.end(),
                     [](const auto& attr) { return std::holds_alternative<GraphPtr>(attr.second); });
}

// Calls work for a copy of each graph in a node of `graph`, which takes its place.
void for_subgraphs(Graph& graph, const std::function<void(Graph&)>& work) {
  for (Node& n : graph.nodes)
    for (auto& [key, value] : n.attrs)
      if (auto* sub = std::get_if<GraphPtr>(&value)) {
        auto copy = std::make_shared<Graph>(**sub);
        in_body(n, [&] {
          work(*copy);
          *sub = copy;
        });
      }
}

// Fewer nodes, canonical spellings, constants where values are known, in loops and branches too; and out of loops what
// does not change there.
void clean_up(Graph& graph, Pipeline& p, const CompileOptions& options, FoldBudget& budget) {
  p.pass("merge_common", merge_common);
  p.fold();
  p.pass("simplify", simplify);
  p.fold();
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), has_subgraph)) return;
  for_subgraphs(graph, [&](Graph& body) {
    Pipeline inner(body, options, nullptr, budget);
    clean_up(body, inner, options, budget);
  });
  p.pass("hoist_invariants", hoist_invariants);
  p.fold();
}

// The two lists name every fusion once: whoever adds one says when it runs.
void check_order() {
  static const bool checked = [] {
    std::multiset<std::string_view> listed(kFormulas.begin(), kFormulas.end()), registered;
    listed.insert(kClusters.begin(), kClusters.end());
    for (const Fusion& f : FusionRegistry::get().all()) registered.insert(f.name);
    if (listed != registered)
      fail(ErrorKind::Internal, "compiler/optimise.cpp lists the fusions {}, there are {}", fmt::join(listed, ", "),
           fmt::join(registered, ", "));
    return true;
  }();
  (void)checked;
}

// A name that is no fusion is a mistake of the caller, not a wish that is already granted.
void check_names(const CompileOptions& options) {
  for (const auto& [name, on] : options.patterns) {
    if (FusionRegistry::get().find(name)) continue;
    std::string known;
    for (const Fusion& f : FusionRegistry::get().all()) known += (known.empty() ? "" : ", ") + f.name;
    throw Error(ErrorKind::InvalidInput, "there is no fusion named '" + name + "'", "there are: " + known);
  }
}

void optimise(Graph& graph, const CompileOptions& options, FusionReport* report, FoldBudget& budget) {
  Pipeline p(graph, options, report, budget);
  if (options.opt_level == 0) {
    p.pass("infer_shapes", infer_shapes);
    return;
  }
  clean_up(graph, p, options, budget);
  p.pass("fold_batch_norm", fold_batch_norm);
  p.pass("fold_pad", fold_pad);
  p.pass("simplify", simplify);
  p.pass("merge_common", merge_common);

  // Recognise formulas; without the reshapes exporters put around linear layers, more of them are seen.
  p.fusions(kFormulas);
  p.pass("expand_quantization", expand_quantization);
  p.pass("hoist_reshape", hoist_reshape);
  p.pass("simplify", simplify);

  // Convolutions work on NHWC; a normalization over channels is then one over the last axis.
  p.pass("sink_squeeze", sink_squeeze);
  p.pass("channels_last", channels_last);
  p.pass("simplify", simplify);
  p.fold();
  p.fusions(kFormulas);
  p.pass("merge_common", merge_common);

  // Epilogues, reductions, element-wise loops.
  p.fusions(kClusters);
  p.fold(FoldWeights::kAll);
  for_subgraphs(graph, [&](Graph& body) {
    optimise(body, options, report, budget);
    forward_outputs(body);
  });
  p.pass("mark_sized_by_data", mark_sized_by_data);
}

}  // namespace

void optimise(Graph& graph, const CompileOptions& options, FusionReport* report) {
  check_order();
  check_names(options);
  FoldBudget budget;
  if (options.limits.fold_seconds > 0) budget.seconds = options.limits.fold_seconds;
  budget.bytes = options.limits.fold_bytes;
  optimise(graph, options, report, budget);
}

}  // namespace ingot
