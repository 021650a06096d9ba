// Hook bodies from expressions. The codegen emits no arithmetic of its own: a hook is a row of calls to the typed
// loads, operators and stores of the kernels' bitcode.
#pragma once
#include "graph/expr.h"

namespace llvm {
class Module;
}

namespace ingot {

// Defines the hooks that the module declares: ingot_hook_epilogue, ingot_hook_ewise.
void define_hooks(llvm::Module&, const Expr&);

}  // namespace ingot
