#include "base/hash.h"
#include "codegen/codegen.h"
#include "codegen/embedded.h"

namespace ingot {

KernelRequest::KernelRequest(const Step& s, const Target& t)
    : kernel(s.kernel->name),
      expr(s.expr),
      params(s.params),
      known(constant_params(s)),
      target(&t),
      key(kernel_key(s)) {
  const std::string all = std::string(t.name) + " " + key;
  symbol = "ingot_k_" + hash128_hex(std::as_bytes(std::span(all)));
}

std::string codegen_version() {
  static const std::string version = [] {
    std::string all = llvm_version() + INGOT_CODEGEN_HASH;
    for (std::string_view bitcode : kernel_bitcode()) all += hash64_hex(std::as_bytes(std::span(bitcode)));
    return hash64_hex(std::as_bytes(std::span(all)));
  }();
  return version;
}

}  // namespace ingot
