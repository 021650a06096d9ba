#include "compiler/kernel_library.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/hash.h"
#include "base/threads.h"
#include "compiler/library.h"
#include "runtime/thread_pool.h"

namespace ingot {
namespace {

constexpr const char* kTable = "ingot_functions";

}  // namespace

std::string kernel_object(const KernelRequest& request, const Cache& cache, const std::atomic<bool>* stop) {
  const std::string key = codegen_version() + "-" + request.symbol + ".o";
  if (auto found = cache.read(key)) return std::move(*found);
  std::string object = compile_kernel(request, stop);
  count_compiled_kernel();
  cache.write(key, object);
  return object;
}

std::vector<std::string> kernel_objects(const Requests& requests, const Cache& cache) {
  std::vector<std::string> objects(requests.size());
  share_out(requests.size(), static_cast<size_t>(default_threads(0).threads),
            [&](size_t i) { objects[i] = kernel_object(*requests[i], cache); });
  return objects;
}

void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) fail(ErrorKind::Io, "cannot write {}: {}", path, std::strerror(errno));
}

std::vector<std::string> write_kernel_objects(const TemporaryFolder& folder, const Requests& requests,
                                              const std::vector<std::string>& objects, const std::string& table) {
  std::vector<std::string> paths, symbols;
  for (size_t i = 0; i < requests.size(); i++) {
    paths.push_back(folder.file("k" + std::to_string(i) + ".o"));
    write_file(paths.back(), objects[i]);
    symbols.push_back(requests[i]->symbol);
  }
  paths.push_back(folder.file("table.o"));
  write_table_object(paths.back(), table, symbols);
  return paths;
}

std::string link_kernels(const Requests& requests, const std::vector<std::string>& objects) {
  const TemporaryFolder folder;
  const auto files = write_kernel_objects(folder, requests, objects, kTable);
  std::string library;
  link_library(folder.file("exports"), files, {kTable}, [&](std::string_view bytes) { library += bytes; });
  return library;
}

// Maps a library that is in memory only: nothing to clean up, no file somebody could change.
std::shared_ptr<const KernelFn> load_kernels(const std::string& library) {
  const int fd = memfd_create("ingot-kernels", MFD_CLOEXEC);
  if (fd < 0) fail(ErrorKind::Resource, "memfd_create: {}", std::strerror(errno));
  size_t done = 0;
  while (done < library.size()) {
    const ssize_t n = write(fd, library.data() + done, library.size() - done);
    if (n <= 0) {
      close(fd);
      fail(ErrorKind::Resource, "cannot hold compiled kernels in memory: {}", std::strerror(errno));
    }
    done += static_cast<size_t>(n);
  }
  void* handle = open_library(fmt::format("/proc/self/fd/{}", fd));
  const char* problem = handle ? nullptr : dlerror();
  close(fd);
  if (!handle) fail(ErrorKind::Resource, "compiled kernels cannot be loaded: {}", problem ? problem : "unknown reason");
  const auto* functions = static_cast<const KernelFn*>(dlsym(handle, kTable));
  if (!functions) {
    dlclose(handle);
    fail(ErrorKind::Internal, "compiled kernels have no table");
  }
  return {functions, [handle](const KernelFn*) { dlclose(handle); }};
}

std::string kernel_set_key(const Requests& requests) {
  std::string all = codegen_version();
  for (const KernelRequest* r : requests) all += r->symbol;
  return "set-" + hash128_hex(std::as_bytes(std::span(all))) + ".so";
}

}  // namespace ingot
