// Where a session's specialised kernels come from: those this process has already, the disk cache, and the compiler.
//
// A plan asks for all kernels it lacks at once. What neither the process nor the cache has is compiled by one thread of
// low priority, first what the native builds have spent most time on so far, and handed over as it is ready: the
// session runs from its first call on and gets faster. docs/decisions/0015 says why.
#pragma once
#include <memory>

#include "compiler/cache.h"
#include "planner/specialised.h"

namespace ingot {

// wait: find() returns when all code is there; it is then compiled on all cores.
std::shared_ptr<KernelSource> compiled_kernels(const Target&, const Cache&, bool wait);

// Ends the thread, for good. A program calls it before it exits: LLVM's globals, some of which are made while a kernel
// is compiled, are then destroyed in an order that nobody chooses.
void end_background_compiles();

}  // namespace ingot
