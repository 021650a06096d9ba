// ingot inspect: signature, operators, fusions and memory of a model, as text, JSON, yaml or a page.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/summary.h"
#include "cli/terminal.h"
#include "emitter/ir_folder.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  ModelOptions model;
  bool json = false, yaml = false, memory = false;
  std::string html;
};

Json to_json(const Counts& counts) {
  Json out = Json::object();
  for (const auto& [name, n] : counts) out[name] = n;
  return out;
}

// Bytes of the arena: from one run on random data, with the shapes given.
int64_t arena_bytes(Model& model, const Options& o) {
  if (model.is_library()) return 0;
  InputOptions random;
  random.random = true;
  std::vector<Array> inputs = random.read(model.inputs(), o.model.parsed_shapes());
  model.start(0);
  model.run(inputs);
  return model.arena_bytes();
}

Json ports_json(const std::vector<Port>& ports) {
  Json out = Json::array();
  for (const Port& p : ports) {
    Json shape = nullptr;
    if (p.shape) {
      shape = Json::array();
      for (const Dim& d : *p.shape) shape.push_back(d.is_const() ? Json(d.value()) : Json(d.str()));
    }
    out.push_back({{"name", p.name}, {"dtype", name(p.dtype)}, {"shape", shape}});
  }
  return out;
}

void print_json(const Model& model, const Options& o, int64_t arena) {
  Json json;
  json["model"] = o.model.path;
  json["inputs"] = ports_json(model.inputs());
  json["outputs"] = ports_json(model.outputs());
  if (!model.is_library()) {
    json["operators"] = to_json(operators(*model.graph()));
    json["original_operators"] = to_json(count(model.original_ops()));
    json["fusions"] = to_json(matched_fusions(model.report()));
    for (const Target* t : targets_of(model.compile_options()))
      json["products"][std::string(t->name)] = to_json(products(*model.graph(), *t));
    json["weights_bytes"] = weight_bytes(*model.graph());
  }
  if (arena) json["arena_bytes"] = arena;
  fmt::print("{}\n", json.dump(2));
}

void print_counts(const Counts& counts) {
  for (const auto& [name, n] : counts) fmt::print("  {:>5}  {}\n", n, name);
}

void print_section(const std::string& title, const Counts& counts) {
  if (counts.empty()) return;
  fmt::print("{}\n", bold(title, 1));
  print_counts(counts);
}

void print_text(const Model& model, const Options& o, int64_t arena) {
  const int out = 1;
  fmt::print("{}\n", bold(o.model.path, out));
  for (const Port& p : model.inputs()) fmt::print("  input   {}\n", describe(p));
  for (const Port& p : model.outputs()) fmt::print("  output  {}\n", describe(p));
  if (model.is_library()) {
    fmt::print("a compiled library: what is inside is machine code\n");
    return;
  }
  const Graph& graph = *model.graph();
  fmt::print("{}\n", bold(fmt::format("{} nodes, {} before clean-up and fusions", graph.nodes.size(),
                                      model.original_ops().size()),
                          out));
  print_counts(operators(graph));
  print_section("fusions", matched_fusions(model.report()));
  for (const Target* t : targets_of(model.compile_options()))
    print_section(fmt::format("products on {}", t->name), products(graph, *t));
  fmt::print("{}\n", bold("memory", out));
  fmt::print("  weights  {}\n", human_bytes(weight_bytes(graph)));
  if (arena) fmt::print("  arena    {}\n", human_bytes(arena));
}

void inspect(const Options& o) {
  Model model(o.model, true);
  if (model.is_library() && (o.yaml || !o.html.empty()))
    throw Error(ErrorKind::Unsupported, fmt::format("{}: a compiled library has no graph to show", o.model.path),
                "inspect the .onnx file or the IR folder it was made from");
  const int64_t arena = o.memory ? arena_bytes(model, o) : 0;
  if (!o.html.empty()) {
    const std::string page = inspect_html(model, o.model.path, arena);
    write_file(o.html, std::as_bytes(std::span(page)));
    print_note("written to " + o.html);
  }
  if (o.json)
    print_json(model, o, arena);
  else if (o.yaml)
    fmt::print("{}", to_yaml(*model.graph()));
  else if (o.html.empty())
    print_text(model, o, arena);
}

}  // namespace

void add_inspect(Command& app) {
  Command command = app.subcommand("inspect", "Show signature, operators, fusions and memory of a model");
  auto options = std::make_shared<Options>();
  options->model.add_to(command);
  command.flag("--memory", options->memory, "run once on random data (see --shape) to know the arena's size");
  command.flag("--json", options->json, "print JSON");
  command.flag("--yaml", options->yaml, "print the graph as Engine IR text").excludes("--json");
  command.option("--html", options->html, "write a page to this file");
  command.callback([options] { inspect(*options); });
}

}  // namespace ingot
