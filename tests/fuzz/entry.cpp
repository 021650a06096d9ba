// A program of libFuzzer: INGOT_FUZZ_TARGET is one of targets.h.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "base/error.h"
#include "targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    ingot::fuzz::INGOT_FUZZ_TARGET({data, size});
  } catch (const ingot::Error& e) {  // says what is wrong: all that is asked, unless it is Ingot that is wrong
    if (e.kind() != ingot::ErrorKind::Internal) return 0;
    fprintf(stderr, "ERROR: internal: %s\n", e.what());
    abort();
  } catch (const std::bad_alloc&) {
  }
  return 0;
}

#ifdef INGOT_FUZZ_WEIGHTS
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

// Only the weights change, and not their number; the graph before them stays.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned) {
  const size_t graph = static_cast<size_t>(std::find(data, data + size, uint8_t{0}) - data) + 1;
  if (graph >= size) return LLVMFuzzerMutate(data, size, most);
  const size_t left = LLVMFuzzerMutate(data + graph, size - graph, size - graph);
  std::fill(data + graph + left, data + size, uint8_t{0});
  return size;
}
#endif
