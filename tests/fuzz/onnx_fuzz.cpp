// Bytes as model.onnx: loaded, optimised and run.
#include "model_file.h"
#include "run_graph.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ingot::ModelFile file({data, size});
  try {
    ingot::run_graph(ingot::load_model(file.path(), {}));
  } catch (const ingot::Error&) {  // says what is wrong: all that is asked
  }
  return 0;
}
