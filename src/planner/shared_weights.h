// Packed weights that the sessions of this process share: one copy of a weight in one packed form, however many graphs,
// shapes and precisions read it. Weights are told apart by their contents; what no graph holds any more is freed.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "graph/graph.h"

namespace ingot {

struct SharedWeight {
  ConstantPtr packed;
  int64_t form = 0;  // of 8-bit weights, whose contents decide on it (ops/quantized_product.h)
};

// The bytes, type and dims of a constant as a part of a key.
std::string content_key(const Constant&);

std::optional<SharedWeight> find_shared_weight(const std::string& key);
// Makes a packed weight, filled already, known under its key. Returns it, or the one that another thread made
// meanwhile.
SharedWeight share_weight(const std::string& key, const SharedWeight&);

}  // namespace ingot
