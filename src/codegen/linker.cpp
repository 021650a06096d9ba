#include <dlfcn.h>
#include <lld/Common/Driver.h>
#include <llvm/Support/raw_ostream.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <mutex>

#include "base/error.h"
#include "codegen/codegen.h"

LLD_HAS_DRIVER(elf)

namespace ingot {
namespace {

// The C library this process runs on: linking against it records its name and symbol versions.
std::string library_of(void* address) {
  Dl_info info;
  if (!dladdr(address, &info) || !info.dli_fname)
    fail(ErrorKind::Internal, "cannot find the C library of this process");
  return info.dli_fname;
}

}  // namespace

void link_library(const std::vector<std::string>& objects, const std::string& path,
                  const std::vector<std::string>& exports) {
  const std::string script_path = path + ".exports";
  {
    std::ofstream script(script_path);
    script << "{ global:";
    for (const auto& e : exports) script << ' ' << e << ';';
    script << " local: *; };\n";
    if (!script.flush()) fail(ErrorKind::Io, "cannot write {}", script_path);
  }
  const std::string libc = library_of(reinterpret_cast<void*>(&::abort)),
                    libm = library_of(reinterpret_cast<void*>(static_cast<double (*)(double)>(&::lgamma)));
  std::vector<std::string> args = {"ld.lld",
                                   "-shared",
                                   "--gc-sections",
                                   "--build-id=none",
                                   "-z",
                                   "defs",
                                   "-z",
                                   "nodelete",
                                   "-z",
                                   "noexecstack",
                                   "--strip-all",
                                   "--icf=all",
                                   "--eh-frame-hdr",
                                   "-Bsymbolic",
                                   "--as-needed",
                                   "-O0",
                                   "--threads=1",  // of its own it would leave unfinished when the process ends
                                   "--version-script=" + script_path,
                                   "-o",
                                   path};
  args.insert(args.end(), objects.begin(), objects.end());
  args.push_back(libc);
  args.push_back(libm);
  args.push_back(library_of(dlsym(RTLD_DEFAULT, "__tls_get_addr")));  // the dynamic loader
  std::vector<const char*> raw;
  for (const auto& a : args) raw.push_back(a.c_str());

  static std::mutex one_at_a_time;  // lld keeps its state in globals
  std::lock_guard lock(one_at_a_time);
  std::string out, err;
  llvm::raw_string_ostream out_stream(out), err_stream(err);
  const lld::Result result = lld::lldMain(raw, out_stream, err_stream, {{lld::Gnu, &lld::elf::link}});
  std::error_code ignored;
  std::filesystem::remove(script_path, ignored);
  if (result.retCode != 0) {
    std::filesystem::remove(path, ignored);
    fail(ErrorKind::Io, "linking {} failed: {}", path, err);
  }
}

}  // namespace ingot
