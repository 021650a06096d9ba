// Optimises and runs a graph that came from anywhere. Any Error is a fine answer; a crash is not.
#pragma once
#include <memory>
#include <vector>

#include "base/error.h"
#include "compiler/compiler.h"

namespace ingot {

constexpr int64_t kFreeDim = 3;
constexpr int64_t kMostElements = 1 << 16;  // of all inputs: what is larger only takes longer

inline void run_graph(std::shared_ptr<Graph> graph) {
  CompileOptions options;
  optimise(*graph, options);
  options.opt_level = 0;  // LLVM is not what is tested here
  std::vector<TensorView> inputs;
  std::vector<std::vector<std::byte>> memory;
  int64_t total = 0;
  for (TensorId t : graph->inputs) {
    const TensorInfo& info = graph->info(t);
    if (!info.shape || info.dtype == DType::String) return;
    TensorView v{info.dtype, {}, nullptr};
    int64_t elements = 1;
    for (const Dim& d : *info.shape) {
      v.dims.push_back(d.is_const() ? d.value() : kFreeDim);
      if (v.dims.back() > kMostElements) return;
      elements *= v.dims.back();
      if (elements > kMostElements) return;
    }
    if ((total += elements) > kMostElements) return;
    memory.emplace_back(static_cast<size_t>(elements * 8 + 64), std::byte{1});
    if (is_integer(info.dtype) && bits(info.dtype) > 8)  // ones: a loop of 2^56 rounds only takes longer
      for (size_t i = 0; i < memory.back().size(); i++)
        memory.back()[i] = std::byte(i % static_cast<size_t>(bits(info.dtype) / 8) == 0);
    inputs.push_back(v);
  }
  for (size_t i = 0; i < inputs.size(); i++) inputs[i].data = memory[i].data();
  SessionOptions session_options;
  session_options.threads = 1;
  auto session = make_session(std::move(graph), options, session_options);
  std::vector<std::vector<std::byte>> outputs;
  session->run(inputs, [&](size_t, DType type, const std::vector<int64_t>& dims) {
    int64_t elements = 1;
    for (int64_t d : dims) elements *= d;
    if (elements > kMostElements * 16) throw Error(ErrorKind::InvalidInput, "too large for this test");
    outputs.emplace_back(static_cast<size_t>(byte_size(type, elements)) + 1);
    return outputs.back().data();
  });
}

}  // namespace ingot
