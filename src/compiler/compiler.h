// The whole pipeline as a story: load, extract, clean up, fuse, and then one of: keep as IR, run here, emit a library.
// This is what the command line and the Python package call.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/limits.h"
#include "base/stop.h"
#include "graph/graph.h"
#include "runtime/session.h"

namespace ingot {

struct CompileOptions {
  std::map<std::string, bool> patterns;                // fusions switched by name; those not named are on
  int opt_level = 3;                                   // 0: no clean-up, no fusions; up to 1: native kernels only
  std::string march = "native";                        // or names of targets (base/targets.inc), commas between
  std::map<std::string, std::vector<int64_t>> shapes;  // fix the shape of inputs (-1 leaves a dim free)
  bool independent_dims = false;                       // dims of inputs that share a name may differ in size
  bool wait = false;                                   // a session runs no native kernel where it may specialise it
  std::string prefix;                                  // of a library's functions, besides ingot_
  std::string cache_dir;                               // the folder of the disk cache; "": as compiler/cache.h says
  Limits limits;                                       // compile_seconds, fold_seconds, fold_bytes, nodes
};

// Puts the limit compile_seconds in force for the calling thread.
class CompileTime {
 public:
  explicit CompileTime(const CompileOptions& options) {
    stop_.after(options.limits.compile_seconds);
    if (options.limits.compile_seconds > 0) scope_.emplace(stop_);
  }

 private:
  Stop stop_{"compiling", "the limit compile_seconds"};
  std::optional<StopScope> scope_;
};

// What each fusion did: for `ingot compile --explain`.
struct FusionReport {
  struct Entry {
    std::string fusion, node, outcome;  // outcome: "matched" or the condition that stopped it
  };
  std::vector<Entry> entries;
  std::vector<std::string> operators;  // of the nodes before the fusions: Node::qualified_op
};

// Reads model.onnx, or an IR folder, by what the path is; verifies, extracts, fixes shapes, expands and infers. A
// model.so is refused here.
std::shared_ptr<Graph> load_model(const std::string& path, const CompileOptions&);
// Every dim of an input gets a name of its own.
void untie_dims(Graph&);
// Inputs get the shapes that the caller fixed. A name that appears elsewhere in the inputs is fixed there too.
void fix_shapes(Graph&, const std::map<std::string, std::vector<int64_t>>& shapes);
// Clean-up passes and fusions, in place.
void optimise(Graph&, const CompileOptions&, FusionReport* report = nullptr);

// From a path to a graph that can be saved, run or emitted: load_model, then optimise unless it is an IR folder, whose
// graph has been through this already.
std::shared_ptr<Graph> prepare_model(const std::string& path, const CompileOptions&, FusionReport* report = nullptr);
// The same for a graph as load_onnx gives it, in place.
void prepare_graph(Graph&, const CompileOptions&, FusionReport* report = nullptr);

// The targets that CompileOptions::march names, each once, in the order given.
std::vector<const Target*> targets_of(const CompileOptions&);
// The one of them that runs here: the last in base/targets.inc, as a library of several targets chooses.
const Target& session_target(const CompileOptions&);
// The graph with its weights in the order of the target's kernels.
std::shared_ptr<Graph> packed_for(const Graph&, const Target&);
// Prepares the model again, with other options.
using GraphMaker = std::function<std::shared_ptr<Graph>(const CompileOptions&)>;
// A session in this process, with packed weights. Its kernels are specialised as its runs ask for them, or at once
// where all shapes are known: in the background, or before it goes on (CompileOptions::wait). With `again`, inputs may
// differ in dims that share a name (SessionOptions::with_independent_dims).
std::unique_ptr<Session> make_session(std::shared_ptr<const Graph>, const CompileOptions&, const SessionOptions&,
                                      const GraphMaker& again = {});
// A self-contained library with the C ABI of include/ingot/ingot.h; written beside and renamed.
void emit_library(std::shared_ptr<const Graph>, const std::string& path, const CompileOptions&);

}  // namespace ingot
