// Specialised kernels as objects and libraries: compiled, or taken from the disk cache, linked and loaded.
//
// The cache holds an object for each kernel, and for the kernels that a plan lacked a library of all of them, so that
// the next process has one file to map.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "codegen/codegen.h"
#include "compiler/cache.h"

namespace ingot {

using Requests = std::vector<const KernelRequest*>;

// The object of one kernel. stop: compile_kernel's.
std::string kernel_object(const KernelRequest&, const Cache&, const std::atomic<bool>* stop = nullptr);
// Those of all, compiled on all cores.
std::vector<std::string> kernel_objects(const Requests&, const Cache&);

// Paths of the objects, written to the folder, and of one with a table of pointers to the kernels.
std::vector<std::string> write_kernel_objects(const TemporaryFolder&, const Requests&,
                                              const std::vector<std::string>& objects, const std::string& table);

// A library whose table has the kernels in order.
std::string link_kernels(const Requests&, const std::vector<std::string>& objects);
// Its functions, in order. The library stays as long as the pointer does.
std::shared_ptr<const KernelFn> load_kernels(const std::string& library);

// The key under which the cache keeps the library of these kernels.
std::string kernel_set_key(const Requests&);

void write_file(const std::string& path, std::string_view bytes);

}  // namespace ingot
