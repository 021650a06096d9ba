// ingot version: what this build is and what it found on this machine.
#include "cli/version.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "runtime/thread_pool.h"

namespace ingot {
namespace {

const char* cpu_level() {
  if (__builtin_cpu_supports("x86-64-v4")) return "x86-64-v4";
  if (__builtin_cpu_supports("x86-64-v3")) return "x86-64-v3";
  if (__builtin_cpu_supports("x86-64-v2")) return "x86-64-v2";
  return "x86-64";
}

void version(bool json) {
  const ThreadCount threads = default_threads(0);
  if (json) {
    const nlohmann::ordered_json out = {{"ingot", kVersion},
                                        {"llvm", INGOT_LLVM_VERSION},
                                        {"cpu", cpu_level()},
                                        {"threads", threads.threads},
                                        {"threads_reason", threads.reason}};
    fmt::print("{}\n", out.dump(2));
    return;
  }
  fmt::print("ingot    {}\nllvm     {}\ncpu      {}\nthreads  {} ({})\n", kVersion, INGOT_LLVM_VERSION, cpu_level(),
             threads.threads, threads.reason);
}

}  // namespace

void add_version(CLI::App& app) {
  auto* command = app.add_subcommand("version", "Show the version, LLVM, the CPU's level and the threads used");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "print JSON");
  command->callback([json] { version(*json); });
}

}  // namespace ingot
