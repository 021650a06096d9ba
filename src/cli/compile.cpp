// ingot compile: a model to Engine IR or to a library.
#include <map>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "emitter/ir_folder.h"
#include "loader/onnx_loader.h"
#include "writer/onnx_graph.h"
#include "writer/onnx_writer.h"

namespace ingot {
namespace {

struct Options {
  ModelOptions model;
  std::string output, prefix;
  bool explain = false;
};

// Per fusion: where it matched, and what stopped it elsewhere. This is data: it goes to stdout.
void print_explanation(const FusionReport& report) {
  std::map<std::string, std::vector<const FusionReport::Entry*>> by_fusion;
  for (const auto& e : report.entries) by_fusion[e.fusion].push_back(&e);
  if (by_fusion.empty()) fmt::print("no fusion looked at any node\n");
  for (const auto& [fusion, entries] : by_fusion) {
    size_t matched = 0;
    std::map<std::string, std::vector<std::string>> stopped;  // reason -> nodes
    for (const auto* e : entries) {
      if (e->outcome == "matched")
        matched++;
      else
        stopped[e->outcome].push_back(e->node);
    }
    fmt::print("{}: matched {} of {}\n", fusion, matched, entries.size());
    for (const auto* e : entries)
      if (e->outcome == "matched") fmt::print("  matched  {}\n", e->node);
    for (const auto& [reason, nodes] : stopped) {
      const std::string more = nodes.size() > 3 ? fmt::format(" and {} more", nodes.size() - 3) : "";
      std::string some;
      for (size_t i = 0; i < std::min<size_t>(nodes.size(), 3); i++) some += (i ? ", " : "") + nodes[i];
      fmt::print("  stopped  {}{}: {}\n", some, more, reason);
    }
  }
}

// Standard operators only: the clean-up, without the fusions whose results ONNX has no operator for.
void write_clean(const Options& o) {
  if (o.explain)
    throw Error(ErrorKind::InvalidInput, "an .onnx file is written without fusions: there is nothing to explain",
                "-o FOLDER writes Engine IR, -o model.so a library");
  const double start = seconds_now();
  OnnxWriteOptions options;
  const auto graph = load_onnx(o.model.path, &options.opsets);
  const size_t before = graph->nodes.size();
  fix_shapes(*graph, o.model.parsed_shapes());
  clean_up(*graph);
  write_onnx(*graph, o.output, options);
  print_note(fmt::format("{}: {} nodes became {}, written to {} in {:.2f} s", o.model.path, before, graph->nodes.size(),
                         o.output, seconds_now() - start));
}

CompileOptions with_prefix(CompileOptions options, const std::string& prefix) {
  options.prefix = prefix;
  return options;
}

void compile(const Options& o) {
  if (o.output.empty() && !o.explain)
    throw Error(ErrorKind::InvalidInput, "nothing to do",
                "say where to: -o FOLDER for IR, -o model.so for a library, -o model.onnx for a simpler model");
  if (o.output.ends_with(".onnx")) return write_clean(o);
  const double start = seconds_now();
  const Model model(o.model, true);
  if (model.is_library())
    throw Error(ErrorKind::InvalidInput, fmt::format("{}: is compiled already", o.model.path),
                "compile the .onnx file or the IR folder it was made from");
  if (o.explain) print_explanation(model.report());
  if (o.output.empty()) return;
  {
    const Progress progress("writing " + o.output);
    if (o.output.ends_with(".so"))
      emit_library(model.graph(), o.output, with_prefix(model.compile_options(), o.prefix));
    else
      save_ir(*model.graph(), o.output);
  }
  print_note(fmt::format("{}: {} nodes became {}, written to {} in {:.2f} s", o.model.path, model.original_ops().size(),
                         model.graph()->nodes.size(), o.output, seconds_now() - start));
}

}  // namespace

void add_compile(Command& app) {
  Command command = app.subcommand("compile", "Compile a model to Engine IR (a folder) or to a library (model.so)");
  auto options = std::make_shared<Options>();
  options->model.add_to(command);
  command.option("-o,--output", options->output, "a folder for Engine IR, model.so, or model.onnx (simplified)");
  command
      .option("--prefix", options->prefix,
              "a library also exports NAME_create and the others: for programs linked with several models")
      .value_name("NAME");
  command.flag("--explain", options->explain, "say where each fusion matched and what stopped it elsewhere");
  command.callback([options] { compile(*options); });
}

}  // namespace ingot
