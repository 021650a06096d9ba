// Raise: a branch of an If that makes no sense for the shapes at hand. It says what is wrong when it is run, not
// before.
#include "ops/host.h"
#include "ops/op.h"

namespace ingot {
namespace {

[[noreturn]] void raise(const Node& node) { throw Error(ErrorKind::InvalidModel, node.get_string("message", "")); }

void infer(InferContext& ctx) { raise(ctx.node); }
void run(HostContext& ctx) { raise(ctx.node); }

}  // namespace

void register_raise(OpRegistry& r) { r.add({"Raise", "ingot", 0, 0, 0, -1, infer, nullptr, nullptr, run}); }

}  // namespace ingot
