// load_ir: an Engine IR folder, its weights mapped.
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "compiler/compiler.h"
#include "loader/ir_reader.h"

namespace ingot {

std::shared_ptr<Graph> load_ir(const std::string& folder) {
  const std::filesystem::path path(folder);
  if (!std::filesystem::is_directory(path)) fail(ErrorKind::Io, "{}: is not a folder with an Engine IR", folder);
  const std::string yaml = (path / "graph.yaml").string();
  auto text = MappedFile::open(yaml);
  auto weights = MappedFile::open((path / "weights.bin").string());
  return read_graph(text->text(), weights->bytes(), weights, {.name = yaml});
}

}  // namespace ingot
