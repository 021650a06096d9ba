// Optimises and runs a graph that came from anywhere. Any Error is a fine answer; a crash is not.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "compiler/compiler.h"

namespace ingot {

constexpr int64_t kFreeDim = 3;
constexpr int64_t kMostElements = 1 << 16;  // of all inputs: what is larger only takes longer

// A small value for an input; nothing when it would be too large. total: elements of all inputs.
inline std::optional<Value> sample_input(const TensorInfo& info, int64_t& total) {
  std::vector<int64_t> dims;
  int64_t elements = 1;
  for (const Dim& d : info.shape ? *info.shape : Shape{Dim(kFreeDim)}) {
    dims.push_back(d.is_const() ? d.value() : kFreeDim);
    if (dims.back() > kMostElements) return std::nullopt;
    elements *= dims.back();
    if (elements > kMostElements) return std::nullopt;
  }
  if ((total += elements) > kMostElements || info.dtype == DType::Undefined) return std::nullopt;
  if (info.dtype == DType::String) {
    auto c = std::make_shared<Constant>();
    c->dtype = info.dtype;
    c->dims = dims;
    for (int64_t i = 0; i < elements; i++) c->strings.push_back(i % 3 ? "Ab \xc3\xa9 1.5" : "");
    return Value(ConstantPtr(std::move(c)));
  }
  std::vector<std::byte> bytes(static_cast<size_t>(byte_size(info.dtype, elements)),
                               std::byte{is_float(info.dtype) ? uint8_t{0x3f} : uint8_t{1}});
  if (is_integer(info.dtype) && bits(info.dtype) > 8)  // ones: a loop of 2^56 rounds only takes longer
    for (size_t i = 0; i < bytes.size(); i++) bytes[i] = std::byte(i % static_cast<size_t>(bits(info.dtype) / 8) == 0);
  return Value(make_constant(info.dtype, dims, bytes));
}

// Small values for every input; nothing when there would be too many.
inline std::optional<std::vector<Value>> sample_inputs(const Graph& graph) {
  std::vector<Value> inputs;
  int64_t total = 0;
  for (TensorId t : graph.inputs) {
    const TensorInfo& info = graph.info(t);
    const auto value = sample_input(info, total);
    if (!value) return std::nullopt;
    const bool sequence = info.form == Form::Sequence || info.form == Form::OptionalSequence;
    inputs.push_back(sequence ? Value(std::vector<Value>{*value, *value}) : *value);
  }
  return inputs;
}

inline void run_graph(std::shared_ptr<Graph> graph) {
  CompileOptions options;
  optimise(*graph, options);
  options.opt_level = 0;  // LLVM is not what is tested here
  const auto values = sample_inputs(*graph);
  if (!values) return;
  SessionOptions session_options;
  session_options.threads = 1;
  auto session = make_session(graph, options, session_options);
  if (!has_plain_ports(*graph)) {
    session->run(*values);
    return;
  }
  std::vector<TensorView> inputs;
  for (const Value& v : *values) inputs.push_back(view_of(v));
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
