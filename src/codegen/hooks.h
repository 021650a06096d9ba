// Hook bodies from expressions. The codegen emits no arithmetic of its own: a hook is a row of calls to the typed
// loads, operators and stores of the kernels' bitcode.
#pragma once
#include "base/target.h"
#include "graph/expr.h"

namespace llvm {
class Module;
}

namespace ingot {

// Defines the hook this kernel calls: ingot_hook_ewise for the element-wise loop, ingot_hook_store for products of
// integers, ingot_hook_epilogue for the others ("acc" where nothing is fused).
void define_hooks(llvm::Module&, const std::string& kernel, const Expr&, const Target&);

}  // namespace ingot
