// `ingot convert`: an ONNX file written another way. Of a file with quantization marks (quantizer/marks.h) this is the
// last step of an export.
#pragma once
#include <optional>
#include <string>

#include "quantizer/convert_report.h"
#include "quantizer/facts.h"

namespace ingot {

struct ConvertOptions {
  std::string to;                  // "qdq", "qlinear", "float", "fp16", "bf16"; empty: as it is, in another opset
  std::optional<int64_t> opset;    // absent: that of the file, or the oldest newer one that serves
  std::optional<BiasRecipe> bias;  // absent: biases as they are
  std::optional<DType> weight;     // U8 or I8; absent: constants as they are
  bool external_data = false;
  bool keep_io = true;  // with "fp16" and "bf16": inputs and outputs stay f32
  std::string facts;    // with "float": a file to write the facts to, as JSON
};

// Nothing is written when it fails, or when the file holds nothing quantized to convert (InvalidInput).
ConvertReport convert_model(const std::string& path, const std::string& output, const ConvertOptions&);

// Quantizes a float model with facts from elsewhere; names are those of the file.
ConvertReport quantize_with_facts(const std::string& path, const std::string& output, const QuantizationFacts&,
                                  const ConvertOptions&);

}  // namespace ingot
