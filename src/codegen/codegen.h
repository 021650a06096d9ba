// Machine code for steps: takes the bitcode of a kernel, stores the parameters that are known as constants, defines the
// hooks from the fused expression, inlines everything, runs LLVM's -O3 for the target, and emits an object. Equal
// kernels are compiled once; objects are kept in the disk cache.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "emitter/ir_writer.h"
#include "graph/expr.h"
#include "planner/specialised.h"

namespace ingot {

// A kernel to specialise: all that decides its code.
struct KernelRequest {
  KernelRequest(const Step&, const Target&);

  std::string kernel;
  std::shared_ptr<const Expr> expr;  // may be null
  std::vector<int64_t> params;
  std::vector<bool> known;  // params that are constants in the code
  const Target* target;
  std::string key;     // kernel_key of the step
  std::string symbol;  // "ingot_k_<hash of key and target>"
};

// Thrown by compile_kernel when it was told to stop.
struct Stopped {};

// The object file (ELF bytes) with one function, request.symbol. Thread-safe. stop: looked at now and then.
std::string compile_kernel(const KernelRequest&, const std::atomic<bool>* stop = nullptr);

// Links object files into a shared library with the embedded lld and hands its bytes to `write`, in order.
// exports: the only symbols visible from outside, "name" or "name=symbol". script: a path for the linker's list of
// them. stays: dlclose does not unmap the library, because threads may still be in it.
void link_library(const std::string& script, const std::vector<std::string>& objects,
                  const std::vector<std::string>& exports, const std::function<void(std::string_view)>& write,
                  bool stays = false);

// An object file defining `symbol` and `symbol`_end around the given bytes, read-only and aligned to 64.
void write_data_object(const std::string& path, const std::string& symbol, std::string_view bytes);
void write_data_object(const std::string& path, const std::string& symbol, const WeightSink& weights);
// An object file defining `symbol` as an array of pointers to the named functions.
void write_table_object(const std::string& path, const std::string& symbol, const std::vector<std::string>& functions);

// The runtime as a relocatable object (embedded); it needs the native kernels of embedded.h.
std::string_view runtime_object_bytes();

// Changes with the kernels' bitcode and with LLVM: part of every cache key.
std::string codegen_version();
std::string llvm_version();

}  // namespace ingot
