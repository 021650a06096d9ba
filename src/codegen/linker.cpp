#include <dlfcn.h>
#include <fcntl.h>
#include <gnu/lib-names.h>
#include <link.h>
#include <lld/Common/Driver.h>
#include <llvm/Support/raw_ostream.h>
#include <pthread.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "codegen/codegen.h"

LLD_HAS_DRIVER(elf)

namespace ingot {
namespace {

// The file of a system library as this process has it: linking against it records its name and symbol versions. Asked
// for by its name and not by one of its functions, which a program may have replaced by its own: sanitizers do.
std::string system_library(const char* name) {
  void* handle = dlopen(name, RTLD_LAZY);
  link_map* found = nullptr;
  if (!handle || dlinfo(handle, RTLD_DI_LINKMAP, &found) != 0) {
    const char* why = dlerror();
    fail(ErrorKind::Resource, "cannot find the {} of this process: {}", name, why ? why : "unknown reason");
  }
  const std::string path = found->l_name;  // stays there: nobody closes these libraries
  dlclose(handle);
  return path;
}

// Held while lld works: it keeps its state in globals. A fork waits until it is free, since its child could not end
// what another thread had begun. These handlers are there before those of compiler/kernel_store.cpp, and are called
// after them: the thread that makes kernels no longer wants to link then.
constinit std::mutex linking;
const int fork_handlers = pthread_atfork([] { linking.lock(); }, [] { linking.unlock(); }, [] { linking.unlock(); });

// Reads a pipe to its end in a thread. An error of `write` is kept, and the rest is read all the same: the writer is
// lld, which ends the process when it cannot write.
class PipeReader {
 public:
  explicit PipeReader(const std::function<void(std::string_view)>& write) : write_(write) {
    if (::pipe2(ends_, O_CLOEXEC) != 0) fail(ErrorKind::Resource, "cannot make a pipe: {}", std::strerror(errno));
    try {
      thread_ = std::thread([this] { read(); });
    } catch (...) {
      ::close(ends_[0]);
      ::close(ends_[1]);
      fail(ErrorKind::Resource, "cannot start a thread");
    }
  }
  ~PipeReader() { finish(); }
  PipeReader(const PipeReader&) = delete;
  PipeReader& operator=(const PipeReader&) = delete;

  std::string path() const { return fmt::format("/proc/self/fd/{}", ends_[1]); }
  // No more will come: waits for the end and throws what went wrong.
  void close() {
    finish();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void read() {
    char buffer[1 << 16];
    for (ssize_t n; (n = ::read(ends_[0], buffer, sizeof buffer)) != 0;) {
      if (n < 0 && errno == EINTR) continue;
      try {
        if (n < 0) fail(ErrorKind::Io, "cannot read from a pipe: {}", std::strerror(errno));
        write_({buffer, static_cast<size_t>(n)});
      } catch (...) {
        failure_ = std::current_exception();
        return drain();
      }
    }
  }
  // By another call than the one that may have failed.
  void drain() {
    char buffer[1 << 16];
    const iovec all{buffer, sizeof buffer};
    for (ssize_t n = 1; n > 0 || (n < 0 && errno == EINTR);) n = ::readv(ends_[0], &all, 1);
  }
  void finish() {
    if (!thread_.joinable()) return;
    ::close(ends_[1]);
    thread_.join();
    ::close(ends_[0]);
  }

  const std::function<void(std::string_view)>& write_;
  int ends_[2] = {-1, -1};
  std::thread thread_;
  std::exception_ptr failure_;
};

void write_script(const std::string& path, const std::vector<std::string>& exports) {
  std::ofstream script(path);
  script << "{ global:";
  for (const auto& e : exports) script << ' ' << e.substr(0, e.find('=')) << ';';
  script << " local: *; };\n";
  if (!script.flush()) fail(ErrorKind::Io, "cannot write {}: {}", path, std::strerror(errno));
}

}  // namespace

void link_library(const std::string& script, const std::vector<std::string>& objects,
                  const std::vector<std::string>& exports, const std::function<void(std::string_view)>& write,
                  bool stays) {
  write_script(script, exports);
  // To a file, lld writes through a mapping, where a full disk is a SIGBUS.
  PipeReader out(write);
  std::vector<std::string> args = {"ld.lld",
                                   "-shared",
                                   "--gc-sections",
                                   "--build-id=none",
                                   "-z",
                                   "defs",
                                   "-z",
                                   "noexecstack",
                                   "--strip-all",
                                   "--icf=all",
                                   "--eh-frame-hdr",
                                   "-Bsymbolic",
                                   "--as-needed",
                                   "-O0",
                                   "--threads=1",  // of its own it would leave unfinished when the process ends
                                   "--version-script=" + script,
                                   "-o",
                                   out.path()};
  if (stays) args.insert(args.end(), {"-z", "nodelete"});
  for (const auto& e : exports)
    if (e.find('=') != std::string::npos) args.push_back("--defsym=" + e);
  args.insert(args.end(), objects.begin(), objects.end());
  for (const char* name : {LIBC_SO, LIBM_SO, LD_SO}) args.push_back(system_library(name));
  std::vector<const char*> raw;
  for (const auto& a : args) raw.push_back(a.c_str());

  std::string messages, errors;
  {
    std::lock_guard lock(linking);
    llvm::raw_string_ostream out_stream(messages), err_stream(errors);
    const lld::Result result = lld::lldMain(raw, out_stream, err_stream, {{lld::Gnu, &lld::elf::link}});
    if (result.retCode != 0) fail(ErrorKind::Io, "linking failed: {}", errors);
  }
  out.close();
}

}  // namespace ingot
