// Writes the Engine IR: graph.yaml, which a person can read and edit, and weights.bin.
//
//   format: ingot-ir
//   version: 1
//   model: main_graph
//   weights: {file: weights.bin, size: 2359360}
//   inputs: [x]
//   outputs: [y]
//   tensors:                                             # in the order of their ids
//     x: {dtype: f32, shape: [batch, 768]}
//     w: {dtype: f32, shape: [768, 768], location: [0, 2359296], checksum: "8c1d..."}
//     axes: {dtype: i64, shape: [1], value: [-1]}        # small constants are written in place
//   operator:                                            # in topological order
//     MatMul_0: {type: MatMul, input: [x, w], output: [h]}
//     Relu_1: {type: LeakyRelu, input: [h], output: [y], attr: {alpha: 0.5}, origins: [act]}
//
// Left out: dtype and shape when unknown, domain "", no attributes, origins equal to [name]. An absent operand is "".
// Kinds of attributes: 1 is an int, 1.0 a float, "1" a string; lists of each; {ints: []} when empty; a map with dtype
// is a tensor, {graph: ...} a subgraph. Offsets are multiples of 64; a checksum is the XXH3-64 of the bytes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace ingot {

// Lays out the weights of a graph; equal spans are stored once. The bytes stay where they are until write().
class WeightSink {
 public:
  int64_t add(std::span<const std::byte>);  // the offset, a multiple of 64
  int64_t size() const { return size_; }

  struct Section {
    int64_t offset;
    std::span<const std::byte> bytes;
  };
  const std::vector<Section>& sections() const { return sections_; }  // in order; zeros between them

 private:
  int64_t size_ = 0;
  std::vector<Section> sections_;
  std::unordered_map<const std::byte*, std::vector<size_t>> seen_;
};

// The yaml; the constants it refers to are added to the sink.
std::string write_graph(const Graph&, WeightSink&);

}  // namespace ingot
