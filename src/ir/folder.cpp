#include "ir/folder.h"

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "ir/reader.h"

namespace ingot {
namespace {

// What kernels read without looking is made by Ingot, never read from a file that anybody may edit.
void refuse_packed(const Graph& g, const std::string& file) {
  for (const Node& n : g.nodes)
    for (const auto& [key, value] : n.attrs) {
      if (key.starts_with("packed"))
        throw Error(ErrorKind::InvalidModel, fmt::format("{}: {}: has the attribute '{}'", file, n.label(), key),
                    "weights are packed when a model is prepared to run; graph.yaml holds them as they are");
      if (const auto* body = std::get_if<GraphPtr>(&value)) refuse_packed(**body, file);
    }
}

}  // namespace

std::shared_ptr<Graph> load_ir(const std::string& folder) {
  const std::filesystem::path path(folder);
  if (!std::filesystem::is_directory(path)) fail(ErrorKind::Io, "{}: is not a folder with an Engine IR", folder);
  const std::string yaml = (path / "graph.yaml").string();
  auto text = FileContent::read(yaml);
  auto weights = FileContent::read((path / "weights.bin").string());
  auto graph = read_graph(text->text(), weights->bytes(), weights, {.name = yaml});
  refuse_packed(*graph, yaml);
  return graph;
}

}  // namespace ingot
