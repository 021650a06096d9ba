#include "model_file.h"
#include "run_graph.h"
#include "targets.h"

void ingot::fuzz::onnx(Bytes bytes) {
  const ModelFile file(bytes);
  run_graph(load_model(file.path(), {}));
}
