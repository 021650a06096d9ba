// How a model is quantized, as data: which tensors have which scales, and which nodes read them so. Facts come from
// calibration (quantizer/calibrate.h), or from elsewhere; quantize() does not ask from where.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace ingot {

// real = (integer - zero_point) * scale
struct TensorFacts {
  DType dtype = DType::U8;
  std::vector<float> scale;         // one; one per index along `axis`; blocked: row-major, the axis divided by `block`
  std::vector<int32_t> zero_point;  // as many as scales
  std::optional<int64_t> axis;      // of a constant: along which the scales lie
  int64_t block = 0;                // of a constant: elements along `axis` that share a scale; 0: one index each
  bool dynamic = false;             // scale and zero point are measured at run time (DynamicQuantizeLinear)
  bool everywhere = false;          // the fp32 value is not kept: every node that reads the tensor reads it quantized
  bool result = false;              // of an output of the model: its caller sees it rounded
};

// The operands, by index, that the node reads quantized. Its bias is none of them: see BiasRecipe.
struct NodeFacts {
  std::vector<size_t> operands;
};

// How the bias of Conv, ConvTranspose and Gemm is stored.
enum class BiasRecipe {
  Int32,         // with the scale of the product: input scale x weight scale
  Fp32,          // as it is
  Fp32Trailing,  // as it is, and the result of every product is quantized
};
// "int32", "fp32", "fp32-trailing"; nothing for other names.
std::optional<BiasRecipe> bias_recipe_from_name(std::string_view);

struct QuantizationFacts {
  std::map<std::string, TensorFacts> tensors;  // by name: activations and constants
  std::map<std::string, NodeFacts> nodes;      // by name
  BiasRecipe bias = BiasRecipe::Int32;
};

// As JSON: {"bias": "int32", "tensors": {"x": {"dtype": "u8", "scale": [0.1], "zero_point": [128]}, ...},
// "nodes": {"product": [0, 1]}}. Reading is an InvalidInput error that says where, for text that is not such facts.
std::string facts_json(const QuantizationFacts&);
QuantizationFacts facts_from_json(const std::string&);

// Smallest and largest integer of a quantized type.
struct IntegerRange {
  int32_t least, most;
};
IntegerRange integer_range(DType);

// Element i of a constant of a quantized type, or of i32.
int32_t integer_at(const Constant&, size_t i);

// The constant in integers. InvalidInput when the facts do not fit its dims.
ConstantPtr quantize_constant(const Constant&, const TensorFacts&);

// The numbers that the integers of a constant stand for; `out` has room for them.
void dequantize_constant(const Constant&, const TensorFacts&, float* out);

// Writes the facts into the graph as QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear, in place.
// Precondition: the tensors named have their types. InvalidInput, naming tensor or node, for scales that are not
// positive numbers, counts that do not fit, zero points outside their type, names that the graph does not have.
void quantize(Graph&, const QuantizationFacts&);

// The other way: takes QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear out of the graph. What is left
// computes in floats, with the weights that the integers stood for; quantize() with the facts that are returned puts
// them back. Marks that facts cannot say stay. Precondition: types are known.
QuantizationFacts lift(Graph&);

}  // namespace ingot
