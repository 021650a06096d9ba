// Runs a graph in ONNX's vocabulary with any of its tensors as results: calibration and comparison.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "graph/value.h"
#include "runtime/session.h"
#include "writer/onnx_graph.h"

namespace ingot {

// Inputs to run a model on, made when they are asked for: data need not fit into memory.
struct Samples {
  size_t count = 0;
  std::function<std::vector<Value>(size_t)> get;  // in the order of the graph's inputs
};

class Runner {
 public:
  // The graph itself is not changed. `tensors`: names, also of inputs.
  Runner(const Graph&, const std::vector<std::string>& tensors);
  // Their values, in that order.
  std::vector<Value> run(const std::vector<Value>& inputs);

 private:
  std::unique_ptr<Session> session_;
  std::vector<int> input_;   // per tensor: which input it is, or -1
  std::vector<int> output_;  // per tensor: which result of the session it is, or -1
};

}  // namespace ingot
