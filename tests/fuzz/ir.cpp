#include <algorithm>
#include <cstring>

#include "ir/reader.h"
#include "run_graph.h"
#include "targets.h"

void ingot::fuzz::ir(Bytes bytes) {
  constexpr size_t kWeights = 1 << 16;  // zeros behind what is given
  struct alignas(64) Weights {
    std::byte bytes[kWeights] = {};
  };
  const auto graph = std::find(bytes.begin(), bytes.end(), uint8_t{0});
  const auto weights = std::make_shared<Weights>();
  if (graph != bytes.end())
    std::memcpy(weights->bytes, &*graph + 1, std::min<size_t>(static_cast<size_t>(bytes.end() - graph) - 1, kWeights));
  IrReadOptions options;
  options.verify_checksums = false;
  const auto length = static_cast<size_t>(graph - bytes.begin());
  run_graph(read_graph({reinterpret_cast<const char*>(bytes.data()), length}, weights->bytes, weights, options));
}
