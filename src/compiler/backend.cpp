// The two back ends: a session in this process and a library on disk, from one packed graph and one list of kernels.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
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

IsaLevel level_of(const std::string& march) {
  if (march == "native" || march.empty()) return cpu_level();
  if (const auto level = level_named(march)) return *level;
  throw Error(ErrorKind::InvalidInput, fmt::format("march '{}' is not a level Ingot compiles for", march),
              "use native, " + level_names());
}

// Objects of all requests, compiled on all cores, each taken from the cache if it is there.
std::vector<std::string> compile_all(const std::vector<KernelRequest>& requests, IsaLevel level, const Cache& cache) {
  std::vector<std::string> objects(requests.size());
  std::atomic<size_t> next{0};
  std::exception_ptr failure;
  std::atomic<bool> failed{false};
  auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < requests.size() && !failed;) try {
        const std::string key = codegen_version() + "-" + std::string(name(level)) + "-" + requests[i].symbol() + ".o";
        if (auto found = cache.read(key)) {
          objects[i] = std::move(*found);
        } else {
          objects[i] = compile_kernel(requests[i], level);
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
                                              IsaLevel level, const Cache& cache, const std::string& table) {
  std::vector<std::string> paths, symbols;
  std::vector<std::string> objects = compile_all(requests, level, cache);
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
std::vector<std::string> registrars_of(const Graph& g) {
  std::set<std::string> symbols;
  add_registrars(g, symbols);
  return {symbols.begin(), symbols.end()};
}

std::string set_key(const std::vector<KernelRequest>& requests, IsaLevel level) {
  std::string all = codegen_version() + std::string(name(level));
  for (const auto& r : requests) all += r.symbol();
  return "set-" + hash128_hex(std::as_bytes(std::span(all))) + ".so";
}

// Of several processes that want the same kernels, one compiles them and the others wait.
std::string kernel_library(const std::vector<KernelRequest>& requests, IsaLevel level, const Cache& cache) {
  const std::string key = set_key(requests, level);
  if (auto library = cache.read(key)) return std::move(*library);
  const Cache::Lock lock = cache.lock(key);
  if (auto library = cache.read(key)) return std::move(*library);
  const TemporaryFolder folder;
  const std::string path = folder.file("kernels.so");
  link_library(write_kernel_objects(folder, requests, level, cache, "ingot_functions"), path, {"ingot_functions"});
  std::ifstream in(path, std::ios::binary);
  std::string library((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  cache.write(key, library);
  return library;
}

std::vector<SpecialisedKernel> load_kernels(const std::vector<KernelRequest>& requests, IsaLevel level,
                                            const Cache& cache) {
  if (requests.empty()) return {};
  void* handle = load_bytes(kernel_library(requests, level, cache));
  auto* functions = static_cast<const KernelFn*>(dlsym(handle, "ingot_functions"));
  if (!functions) fail(ErrorKind::Internal, "compiled kernels have no table");
  std::vector<SpecialisedKernel> out = describe(requests);
  for (size_t i = 0; i < out.size(); i++) out[i].function = functions[i];
  return out;
}

}  // namespace

std::shared_ptr<Graph> packed_for(const Graph& graph, const CompileOptions& options) {
  auto packed = std::make_shared<Graph>(graph);
  // Only specialised kernels have vpdpbusd.
  pack_weights(*packed, options.opt_level > 0 && level_of(options.march) == IsaLevel::V3Vnni);
  return packed;
}

std::unique_ptr<Session> make_session(std::shared_ptr<const Graph> graph, const CompileOptions& options,
                                      const SessionOptions& session_options) {
  const IsaLevel level = level_of(options.march);
  if (level > cpu_level())
    throw Error(ErrorKind::InvalidInput, fmt::format("this CPU does not run {}", name(level)),
                "compile with march native");
  const auto packed = packed_for(*graph, options);
  std::vector<SpecialisedKernel> kernels;
  if (options.opt_level > 0) kernels = load_kernels(choose_kernels(packed), level, Cache(options.cache_dir));
  return std::make_unique<Session>(packed, std::move(kernels), session_options);
}

void emit_library(std::shared_ptr<const Graph> graph, const std::string& path, const CompileOptions& options) {
  const IsaLevel level = level_of(options.march);
  const auto packed = packed_for(*graph, options);
  std::vector<KernelRequest> requests;
  if (options.opt_level > 0) requests = choose_kernels(packed);
  const Cache cache(options.cache_dir);
  const TemporaryFolder folder;
  std::vector<std::string> objects = write_kernel_objects(folder, requests, level, cache, "ingot_embedded_functions");

  WeightSink weights;
  const std::string text = write_graph(*packed, weights);
  const std::string kernels = "isa " + std::string(name(level)) + "\n" + write_kernels(describe(requests));
  auto data = [&](const char* symbol, const auto& bytes) {
    objects.push_back(folder.file(std::string(symbol) + ".o"));
    write_data_object(objects.back(), symbol, bytes);
  };
  data("ingot_embedded_graph", text);
  data("ingot_embedded_kernels", kernels);
  data("ingot_embedded_weights", weights);
  objects.push_back(folder.file("operators.o"));
  write_table_object(objects.back(), "ingot_ops_registrars", registrars_of(*packed));
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
