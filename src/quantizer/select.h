// Which nodes of a model are quantized, and why the others are not.
//
// Products (MatMul, Gemm, Conv, ConvTranspose) are what quantization is for. Other operators join where they stand
// between quantized nodes: what they read is there in integers already, and what they make is wanted in integers. An
// activation behind a product, and the addition of its bias, are part of the product: the result is rounded once,
// behind them.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "quantizer/facts.h"

namespace ingot {

enum class QuantizeMode { Static, Dynamic, WeightOnly };

struct SelectOptions {
  QuantizeMode mode = QuantizeMode::Static;
  std::vector<std::string> op_types, exclude_op_types;  // empty op_types: the default ones
  std::vector<std::string> nodes, exclude_nodes;        // names, or patterns with * and ?; empty nodes: all
  BiasRecipe bias = BiasRecipe::Int32;
};

struct SelectedNode {
  std::string name, op;
  std::vector<size_t> operands;  // read quantized
  TensorId result = kNoTensor;   // behind the bias and the activation that belong to it
};

struct SkippedNode {
  std::string name, op, reason;
};

struct Selection {
  std::vector<SelectedNode> nodes;
  std::vector<SkippedNode> skipped;                 // those that could have been quantized
  std::vector<TensorId> everywhere;                 // made in integers: no reader needs them in fp32
  std::unordered_map<TensorId, TensorId> group_of;  // tensors that share a scale -> one of them
};

// Precondition: types are known. InvalidInput for names and operator types that match nothing.
Selection select_nodes(const Graph&, const SelectOptions&);

// Shell patterns: * any text, ? any character.
bool matches_pattern(const std::string& pattern, const std::string& text);

}  // namespace ingot
