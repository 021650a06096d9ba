// Bytes as model.onnx: loaded, optimised and run.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "run_graph.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int fd = memfd_create("model", MFD_CLOEXEC);
  if (fd < 0 || write(fd, data, size) != static_cast<ssize_t>(size)) abort();
  try {
    ingot::run_graph(ingot::load_model("/proc/self/fd/" + std::to_string(fd), {}));
  } catch (const ingot::Error&) {  // says what is wrong: all that is asked
  }
  close(fd);
  return 0;
}
