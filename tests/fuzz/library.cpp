#include "compiler/library.h"

#include "model_file.h"
#include "targets.h"

void ingot::fuzz::library(Bytes bytes) {
  const ModelFile file(bytes);
  if (is_library_file(file.path())) check_library(file.path());
}
