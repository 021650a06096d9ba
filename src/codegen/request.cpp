#include "base/hash.h"
#include "codegen/bitcode.h"
#include "codegen/codegen.h"

namespace ingot {

std::string KernelRequest::symbol() const {
  std::string all = std::string(target->name) + "|" + kernel + "|" + std::to_string(structure) + "|";
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
    std::string all = llvm_version() + INGOT_CODEGEN_HASH;
    for (std::string_view bitcode : kernel_bitcode()) all += hash64_hex(std::as_bytes(std::span(bitcode)));
    return hash64_hex(std::as_bytes(std::span(all)));
  }();
  return version;
}

}  // namespace ingot
