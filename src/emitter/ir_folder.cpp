#include "emitter/ir_folder.h"

#include <array>

#include "base/file.h"
#include "emitter/ir_writer.h"

namespace ingot {

void save_ir(const Graph& graph, const std::string& folder) {
  WeightSink weights;
  const std::string yaml = write_graph(graph, weights);
  static constexpr std::array<std::string_view, 2> files = {"graph.yaml", "weights.bin"};
  atomic_folder(folder, files, [&](const std::string& temporary) {
    atomic_write(temporary + "/graph.yaml", yaml);
    AtomicFile bin(temporary + "/weights.bin");
    constexpr std::array<std::byte, 64> zeros{};
    for (const auto& section : weights.sections()) {
      bin.write(std::span(zeros).first(static_cast<size_t>(section.offset - bin.size())));
      bin.write(section.bytes);
    }
    bin.commit();
  });
}

std::string to_yaml(const Graph& graph) {
  WeightSink weights;
  return write_graph(graph, weights);
}

}  // namespace ingot
