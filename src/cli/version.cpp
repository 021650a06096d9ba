// ingot version: what this build is and what it found on this machine.
#include "cli/version.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/target.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "matcher/fusion.h"
#include "ops/op.h"
#include "ops/product.h"
#include "runtime/thread_pool.h"

namespace ingot {
namespace {

struct Options {
  bool json = false, operators = false, fusions = false, targets = false;
};

// One name per line, sorted. Operators of ONNX that become these when a model is read are not repeated here.
void print_names(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  for (const std::string& n : names) fmt::print("{}\n", n);
}

// What products of 8-bit integers are made of (kernels/gemm_i8.h).
const char* byte_products(const Target& t) {
  if (t.has_byte_tiles()) return "AMX tiles";
  return t.adds_byte_products() ? "vpdpbusd" : "chained, pairs, rows";
}

// The same for bf16 by bf16 (kernels/gemm_bf16.h).
const char* bf16_products(const Target& t) {
  const auto form = bf16_form(t);
  return !form ? "widened to f32" : *form == kernel::kBf16Tiles ? "AMX tiles" : "vdpbf16ps";
}

// The table of docs/targets.md.
void print_targets() {
  fmt::print(
      "| target | features beyond its build | build | floats in a vector | vector registers | 8-bit products | bf16 "
      "products |\n");
  fmt::print("|---|---|---|---|---|---|---|\n");
  for (const Target& t : targets()) {
    std::string features;
    for (char c : t.features)
      if (c != '+') features += c == ',' ? std::string(", ") : std::string(1, c);
    fmt::print("| `{}` | {} | `{}` | {} | {} | {} | {} |\n", t.name, features, t.march, t.lanes, t.registers,
               byte_products(t), bf16_products(t));
  }
  std::vector<std::string_view> here;
  for (const Target& t : targets())
    if (runs_here(t)) here.push_back(t.name);
  print_note(fmt::format("this CPU runs {}", fmt::join(here, ", ")));
}

void version(const Options& o) {
  if (o.targets) return print_targets();
  std::vector<std::string> names;
  if (o.operators)
    for (const OpDef* def : OpRegistry::get().all())
      names.push_back(def->domain.empty() ? def->name : def->domain + "." + def->name);
  if (o.fusions)
    for (const Fusion& fusion : FusionRegistry::get().all()) names.push_back(fusion.name);
  if (o.operators || o.fusions) return print_names(std::move(names));
  const ThreadCount threads = default_threads(0);
  if (o.json) {
    const nlohmann::ordered_json out = {{"ingot", kVersion},           {"llvm", INGOT_LLVM_VERSION},
                                        {"target", cpu_target().name}, {"target_reason", why_cpu_target()},
                                        {"threads", threads.threads},  {"threads_reason", threads.reason}};
    fmt::print("{}\n", out.dump(2));
    return;
  }
  fmt::print("ingot    {}\nllvm     {}\ntarget   {} ({})\nthreads  {} ({})\n", kVersion, INGOT_LLVM_VERSION,
             cpu_target().name, why_cpu_target(), threads.threads, threads.reason);
}

}  // namespace

void add_version(Command& app) {
  Command command = app.subcommand("version", "Show the version, LLVM, the CPU's target and the threads used");
  auto options = std::make_shared<Options>();
  command.flag("--json", options->json, "print JSON");
  command.flag("--operators", options->operators, "list the operators there are");
  command.flag("--fusions", options->fusions, "list the fusions that --pattern switches");
  command.flag("--targets", options->targets, "list the targets there are, as a table");
  command.callback([options] { version(*options); });
}

}  // namespace ingot
