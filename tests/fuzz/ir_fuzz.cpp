// Bytes as graph.yaml, with a weights.bin of zeros: read, optimised and run.
#include "ir/reader.h"
#include "run_graph.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  alignas(64) static const std::byte weights[1 << 16] = {};
  ingot::IrReadOptions options;
  options.verify_checksums = false;
  try {
    ingot::run_graph(ingot::read_graph({reinterpret_cast<const char*>(data), size}, weights, nullptr, options));
  } catch (const ingot::Error&) {  // says what is wrong: all that is asked
  }
  return 0;
}
