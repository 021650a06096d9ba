// The two back ends: a session in this process and a library on disk, from one packed graph.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "codegen/codegen.h"
#include "codegen/embedded.h"
#include "compiler/cache.h"
#include "compiler/compiler.h"
#include "compiler/kernel_library.h"
#include "compiler/kernel_store.h"
#include "compiler/library.h"
#include "compiler/specialise.h"
#include "emitter/ir_writer.h"
#include "ops/op.h"
#include "planner/pack_weights.h"
#include "planner/specialised.h"

namespace ingot {
namespace {

bool specialises(const CompileOptions& options) { return options.opt_level > 1; }

// INGOT_WAIT=1 is for tests and measurements of programs that do not ask themselves.
bool waits(const CompileOptions& options) {
  const char* everywhere = std::getenv("INGOT_WAIT");
  return options.wait || (everywhere && std::string_view(everywhere) == "1");
}

// A state may be bound to a graph that adds to one of its inputs: that takes operators the graph does not name.
bool may_grow(const Graph& g) {
  return std::any_of(g.nodes.begin(), g.nodes.end(), [&](const Node& n) {
    return (n.is("Concat") || n.is("Pad")) && std::count(g.inputs.begin(), g.inputs.end(), n.inputs[0]) > 0;
  });
}

// Linker symbols of the functions that register the graph's operators: what they do not name stays out of the library.
void add_registrars(const Graph& g, std::set<std::string>& symbols) {
  for (const Node& n : g.nodes) {
    symbols.insert(ingot_ops_registrar_symbols[OpRegistry::get().need(n).source]);
    for (const auto& [attr, value] : n.attrs)
      if (const auto* body = std::get_if<GraphPtr>(&value)) add_registrars(**body, symbols);
  }
}

// The functions of include/ingot/ingot.h, and with a prefix p each of them as p_create, ... too: names that a program
// linked with several models can tell apart.
std::vector<std::string> exported_names(const std::string& prefix) {
  if (prefix.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") !=
          std::string::npos ||
      (!prefix.empty() && std::isdigit(static_cast<unsigned char>(prefix[0]))))
    throw Error(ErrorKind::InvalidInput, fmt::format("prefix '{}' is not a name in C", prefix),
                "letters, digits and underscores, not a digit first");
  std::vector<std::string> out;
  for (const char* name : {"api_version", "create", "create_with", "destroy", "signature", "run", "run_with", "release",
                           "state_create", "state_destroy", "state_signature", "state_run", "state_run_with",
                           "state_reset", "state_length", "state_get", "state_set", "error"}) {
    out.push_back(std::string("ingot_") + name);
    if (!prefix.empty()) out.push_back(fmt::format("{}_{}=ingot_{}", prefix, name, name));
  }
  return out;
}

}  // namespace

std::vector<const Target*> targets_of(const CompileOptions& options) {
  std::vector<const Target*> out;
  std::istringstream names(options.march.empty() ? "native" : options.march);
  for (std::string name; std::getline(names, name, ',');) {
    const Target* target = name == "native" ? &cpu_target() : target_named(name);
    if (!target)
      throw Error(ErrorKind::InvalidInput, fmt::format("march '{}' is not a target Ingot compiles for", name),
                  "use native, " + target_names());
    if (std::find(out.begin(), out.end(), target) == out.end()) out.push_back(target);
  }
  return out;
}

const Target& session_target(const CompileOptions& options) {
  const Target* best = nullptr;
  for (const Target* t : targets_of(options))
    if (runs_here(*t) && (!best || t > best)) best = t;
  if (!best)
    throw Error(ErrorKind::InvalidInput, fmt::format("this CPU does not run {}", options.march),
                fmt::format("march native is {}{}", cpu_target().name,
                            std::getenv("INGOT_ISA") ? ", which INGOT_ISA asks for" : ""));
  return *best;
}

std::shared_ptr<Graph> packed_for(const Graph& graph, const Target& target) {
  auto packed = std::make_shared<Graph>(graph);
  pack_weights(*packed, target);
  return packed;
}

std::unique_ptr<Session> make_session(std::shared_ptr<const Graph> graph, const CompileOptions& options,
                                      const SessionOptions& session_options, const GraphMaker& again) {
  SessionOptions with_other = session_options;
  if (again && !options.independent_dims)
    with_other.with_independent_dims = [again, options, session_options] {
      CompileOptions other = options;
      other.independent_dims = true;
      return make_session(again(other), other, session_options);
    };
  const CompileTime time(options);
  const Target& target = session_target(options);
  std::shared_ptr<KernelSource> kernels;
  if (specialises(options)) kernels = compiled_kernels(target, Cache(options.cache_dir), waits(options));
  auto session = std::make_unique<Session>(packed_for(*graph, target), kernels, with_other);
  if (kernels) session->prepare();
  return session;
}

void emit_library(std::shared_ptr<const Graph> graph, const std::string& path, const CompileOptions& options) {
  const CompileTime time(options);
  const std::vector<const Target*> wanted = targets_of(options);
  std::vector<TargetKernels> kernels;
  std::vector<KernelRequest> requests;
  std::set<std::string> registrars;
  std::shared_ptr<const Graph> embedded = wanted.size() > 1 ? graph : nullptr;
  for (const Target* target : wanted) {
    check_stop();
    const auto packed = packed_for(*graph, *target);
    kernels.push_back({target, {}});
    if (specialises(options))
      for (KernelRequest& r : foreseen_kernels(packed)) {
        kernels.back().keys.push_back(r.key);
        requests.push_back(std::move(r));
      }
    add_registrars(*packed, registrars);
    if (may_grow(*packed))
      registrars.insert(ingot_ops_registrar_symbols[OpRegistry::get().find("Append", "ingot")->source]);
    if (wanted.size() == 1) embedded = packed;
  }
  const Cache cache(options.cache_dir);
  const TemporaryFolder folder;
  Requests all;
  for (const KernelRequest& r : requests) all.push_back(&r);
  std::vector<std::string> objects =
      write_kernel_objects(folder, all, kernel_objects(all, cache), "ingot_embedded_functions");

  WeightSink weights;
  const std::string text = write_graph(*embedded, weights);
  auto data = [&](const char* symbol, const auto& bytes) {
    objects.push_back(folder.file(std::string(symbol) + ".o"));
    write_data_object(objects.back(), symbol, bytes);
  };
  auto table = [&](const char* symbol, const std::vector<std::string>& functions) {
    objects.push_back(folder.file(std::string(symbol) + ".o"));
    write_table_object(objects.back(), symbol, functions);
  };
  data("ingot_embedded_graph", text);
  data("ingot_embedded_kernels", write_targets(kernels));
  data("ingot_embedded_weights", weights);
  table("ingot_ops_registrars", {registrars.begin(), registrars.end()});
  // Targets differ in how their weights are packed: with several, weights are embedded as they are.
  table("ingot_embedded_packers",
        wanted.size() > 1 ? std::vector<std::string>{"ingot_pack_weights"} : std::vector<std::string>{});
  objects.push_back(folder.file("runtime.o"));
  write_file(objects.back(), runtime_object_bytes());
  for (size_t build = 0; build < kBuilds; build++) {
    const bool used = std::any_of(wanted.begin(), wanted.end(),
                                  [&](const Target* t) { return static_cast<size_t>(t->build) == build; });
    objects.push_back(folder.file(fmt::format("kernels_{}.o", build)));
    write_file(objects.back(), (used ? native_kernels() : absent_kernels())[build]);
  }

  AtomicFile file(path);
  HashStream hash;
  link_library(
      folder.file("exports"), objects, exported_names(options.prefix),
      [&](std::string_view bytes) {
        file.write(bytes);
        hash.add(std::as_bytes(std::span(bytes)));
      },
      /*stays=*/true);
  file.write(library_seal(file.size(), hash.hex()));
  file.commit();
}

}  // namespace ingot
