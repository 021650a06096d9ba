#include <cstdlib>
#include <string>
#include <vector>

#include "cli/model.h"
#include "compiler/cache.h"
#include "graph/graph.h"
#include "ir/reader.h"
#include "passes/autocast.h"
#include "runtime/thread_pool.h"
#include "targets.h"

namespace ingot {
namespace {

constexpr const char* kGraph = R"(format: ingot-ir
version: 1
model: "options"
weights: {file: weights.bin, size: 0}
inputs: [x, "y"]
outputs: [v]
tensors:
  w: {dtype: f32, shape: [4, 2], value: [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]}
  x: {dtype: f32, shape: ["n", 4]}
  "y": {dtype: f32, shape: ["n", m]}
  z: {dtype: f32, shape: ["n", 2]}
  u: {dtype: f32, shape: ["n", 2]}
  v: {dtype: f32, shape: ["n", 2]}
operator:
  MatMul_0: {type: MatMul, input: [x, w], output: [z]}
  Gelu_0: {type: Gelu, input: [z], output: [u]}
  Add_2: {type: Add, input: [u, "y"], output: [v]}
)";

// What a caller can say of a model: the words of a command line, and of the environment those that stand in front of it
// as NAME=value.
ModelOptions model_options;

void declare(Command& program) {
  model_options = {};
  Command command = program.subcommand("model", "");
  model_options.add_to(command);
}

}  // namespace

void fuzz::options(Bytes bytes) {
  std::vector<std::string> words = {"ingot", "model", "x.onnx"};
  words.emplace_back();
  for (const uint8_t c : bytes) {
    if (c == '\n')
      words.emplace_back();
    else if (c != 0)
      words.back() += static_cast<char>(c);
  }
  for (const char* name : {"INGOT_CACHE_SIZE", "INGOT_NUM_THREADS", "OMP_NUM_THREADS", "INGOT_DENORMALS"}) {
    unsetenv(name);
    for (auto word = words.begin() + 3; word != words.end(); ++word)
      if (word->starts_with(std::string(name) + "=")) {
        setenv(name, word->c_str() + word->find('=') + 1, 1);
        words.erase(word);
        break;
      }
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  default_threads(0);
  const Cache cache("");
  if (run_command_line(static_cast<int>(arguments.size()), arguments.data(), "", "", declare) != 0) return;
  CompileOptions options = model_options.compile_options();
  options.shapes = model_options.parsed_shapes();
  targets_of(options);
  auto graph = read_graph(kGraph, {}, nullptr);
  prepare_graph(*graph, options);
  if (!model_options.autocast.empty()) autocast(*graph, model_options.autocast);
}

}  // namespace ingot
