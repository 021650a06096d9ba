#include "base/hash.h"
#include "codegen/codegen.h"

namespace ingot {

extern const unsigned char kernels_v2_bitcode[];
extern const size_t kernels_v2_bitcode_size;
extern const unsigned char kernels_v3_bitcode[];
extern const size_t kernels_v3_bitcode_size;

std::string KernelRequest::symbol() const {
  std::string all = kernel + "|" + std::to_string(structure) + "|";
  for (size_t i = 0; i < params.size(); i++) all += known[i] ? std::to_string(params[i]) + "," : "?,";
  if (expr) {
    all += "|" + expr->str();
    for (DType t : expr->input_types) all += "|" + std::string(name(t));
    for (DType t : expr->result_types) all += "|" + std::string(name(t));
  }
  return "ingot_k_" + hash128_hex(std::as_bytes(std::span(all)));
}

std::string codegen_version() {
  static const std::string version = [] {
    auto part = [](const unsigned char* p, size_t n) { return hash64_hex(std::as_bytes(std::span(p, n))); };
    const std::string all = part(kernels_v2_bitcode, kernels_v2_bitcode_size) +
                            part(kernels_v3_bitcode, kernels_v3_bitcode_size) + llvm_version() + INGOT_CODEGEN_HASH;
    return hash64_hex(std::as_bytes(std::span(all)));
  }();
  return version;
}

}  // namespace ingot
