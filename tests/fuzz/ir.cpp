#include <algorithm>
#include <cstring>
#include <new>

#include "ir/reader.h"
#include "run_graph.h"
#include "targets.h"

void ingot::fuzz::ir(Bytes bytes) {
  constexpr std::align_val_t kAligned{64};
  constexpr size_t kPast = 64;  // can be read behind weights, as behind a FileContent
  const auto end = std::find(bytes.begin(), bytes.end(), uint8_t{0});
  const auto length = static_cast<size_t>(end - bytes.begin());
  const Bytes given = bytes.subspan(std::min(length + 1, bytes.size()));
  // Exactly as many as given: the graph says how many it expects.
  const std::shared_ptr<std::byte> weights(static_cast<std::byte*>(::operator new(given.size() + kPast, kAligned)),
                                           [](std::byte* p) { ::operator delete(p, kAligned); });
  std::memset(weights.get(), 0, given.size() + kPast);
  if (!given.empty()) std::memcpy(weights.get(), given.data(), given.size());
  IrReadOptions options;
  options.verify_checksums = false;
  run_graph(read_graph({reinterpret_cast<const char*>(bytes.data()), length}, {weights.get(), given.size()}, weights,
                       options));
}
