// The two back ends: a session in this process and a library on disk, from one packed graph and one list of kernels.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "codegen/codegen.h"
#include "compiler/cache.h"
#include "compiler/compiler.h"
#include "compiler/library.h"
#include "compiler/specialise.h"
#include "emitter/ir_writer.h"
#include "ops/op.h"
#include "planner/pack_weights.h"
#include "planner/specialised.h"
#include "runtime/thread_pool.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {

// Objects of all requests, compiled on all cores, each taken from the cache if it is there.
std::vector<std::string> compile_all(const std::vector<KernelRequest>& requests, const Cache& cache) {
  std::vector<std::string> objects(requests.size());
  std::atomic<size_t> next{0};
  std::exception_ptr failure;
  std::atomic<bool> failed{false};
  auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < requests.size() && !failed;) try {
        const std::string key = codegen_version() + "-" + requests[i].symbol() + ".o";
        if (auto found = cache.read(key)) {
          objects[i] = std::move(*found);
        } else {
          objects[i] = compile_kernel(requests[i]);
          count_compiled_kernel();
          cache.write(key, objects[i]);
        }
      } catch (...) {
        if (!failed.exchange(true)) failure = std::current_exception();
      }
  };
  std::vector<std::thread> helpers;
  const int threads = std::min<int>(default_threads(0).threads, static_cast<int>(requests.size()));
  for (int t = 1; t < threads; t++) helpers.emplace_back(work);
  work();
  for (auto& h : helpers) h.join();
  if (failure) std::rethrow_exception(failure);
  return objects;
}

std::vector<SpecialisedKernel> describe(const std::vector<KernelRequest>& requests) {
  std::vector<SpecialisedKernel> out;
  for (const auto& r : requests)
    out.push_back({r.kernel, kernel_expr(r.expr.get()), r.params, r.known, r.structure, nullptr});
  return out;
}

void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) fail(ErrorKind::Io, "cannot write {}: {}", path, std::strerror(errno));
}

// Object files of the kernels and of the table of their entries.
std::vector<std::string> write_kernel_objects(const TemporaryFolder& folder, const std::vector<KernelRequest>& requests,
                                              const Cache& cache, const std::string& table) {
  std::vector<std::string> paths, symbols;
  std::vector<std::string> objects = compile_all(requests, cache);
  for (size_t i = 0; i < requests.size(); i++) {
    paths.push_back(folder.file("k" + std::to_string(i) + ".o"));
    write_file(paths.back(), objects[i]);
    symbols.push_back(requests[i].symbol());
  }
  paths.push_back(folder.file("table.o"));
  write_table_object(paths.back(), table, symbols);
  return paths;
}

// Maps a library that is in memory only: nothing to clean up, no file somebody could change.
void* load_bytes(const std::string& bytes) {
  const int fd = memfd_create("ingot-kernels", MFD_CLOEXEC);
  if (fd < 0) fail(ErrorKind::Io, "memfd_create: {}", std::strerror(errno));
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = write(fd, bytes.data() + done, bytes.size() - done);
    if (n <= 0) {
      close(fd);
      fail(ErrorKind::Io, "cannot hold compiled kernels in memory: {}", std::strerror(errno));
    }
    done += static_cast<size_t>(n);
  }
  void* handle = open_library(fmt::format("/proc/self/fd/{}", fd));
  const std::string problem = handle ? "" : dlerror();
  close(fd);
  if (!handle) fail(ErrorKind::Io, "compiled kernels cannot be loaded: {}", problem);
  return handle;
}

// Linker symbols of the functions that register the graph's operators: what they do not name stays out of the library.
void add_registrars(const Graph& g, std::set<std::string>& symbols) {
  for (const Node& n : g.nodes) {
    symbols.insert(ingot_ops_registrar_symbols[OpRegistry::get().need(n).source]);
    for (const auto& [attr, value] : n.attrs)
      if (const auto* body = std::get_if<GraphPtr>(&value)) add_registrars(**body, symbols);
  }
}

std::string set_key(const std::vector<KernelRequest>& requests) {
  std::string all = codegen_version();
  for (const auto& r : requests) all += r.symbol();
  return "set-" + hash128_hex(std::as_bytes(std::span(all))) + ".so";
}

// Of several processes that want the same kernels, one compiles them and the others wait.
std::string kernel_library(const std::vector<KernelRequest>& requests, const Cache& cache) {
  const std::string key = set_key(requests);
  if (auto library = cache.read(key)) return std::move(*library);
  const Cache::Lock lock = cache.lock(key);
  if (auto library = cache.read(key)) return std::move(*library);
  const TemporaryFolder folder;
  const std::string path = folder.file("kernels.so");
  link_library(write_kernel_objects(folder, requests, cache, "ingot_functions"), path, {"ingot_functions"});
  std::ifstream in(path, std::ios::binary);
  std::string library((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  cache.write(key, library);
  return library;
}

std::vector<SpecialisedKernel> load_kernels(const std::vector<KernelRequest>& requests, const Cache& cache) {
  if (requests.empty()) return {};
  void* handle = load_bytes(kernel_library(requests, cache));
  auto* functions = static_cast<const KernelFn*>(dlsym(handle, "ingot_functions"));
  if (!functions) fail(ErrorKind::Internal, "compiled kernels have no table");
  std::vector<SpecialisedKernel> out = describe(requests);
  for (size_t i = 0; i < out.size(); i++) out[i].function = functions[i];
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
                                      const SessionOptions& session_options) {
  const auto packed = packed_for(*graph, session_target(options));
  std::vector<SpecialisedKernel> kernels;
  if (options.opt_level > 0) kernels = load_kernels(choose_kernels(packed), Cache(options.cache_dir));
  return std::make_unique<Session>(packed, std::move(kernels), session_options);
}

void emit_library(std::shared_ptr<const Graph> graph, const std::string& path, const CompileOptions& options) {
  const std::vector<const Target*> wanted = targets_of(options);
  std::vector<TargetKernels> kernels;
  std::vector<KernelRequest> requests;
  std::set<std::string> registrars;
  std::shared_ptr<const Graph> embedded = wanted.size() > 1 ? graph : nullptr;
  for (const Target* target : wanted) {
    const auto packed = packed_for(*graph, *target);
    std::vector<KernelRequest> more;
    if (options.opt_level > 0) more = choose_kernels(packed);
    kernels.push_back({target, describe(more)});
    requests.insert(requests.end(), more.begin(), more.end());
    add_registrars(*packed, registrars);
    if (wanted.size() == 1) embedded = packed;
  }
  const Cache cache(options.cache_dir);
  const TemporaryFolder folder;
  std::vector<std::string> objects = write_kernel_objects(folder, requests, cache, "ingot_embedded_functions");

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

  const std::string beside = path + "." + std::to_string(getpid()) + ".new";
  link_library(objects, beside,
               {"ingot_api_version", "ingot_create", "ingot_destroy", "ingot_signature", "ingot_run", "ingot_release",
                "ingot_error"});
  std::error_code error;
  fs::rename(beside, path, error);
  if (error) {
    std::error_code ignored;
    fs::remove(beside, ignored);
    fail(ErrorKind::Io, "cannot write {}: {}", path, error.message());
  }
}

}  // namespace ingot
