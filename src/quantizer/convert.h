// `ingot convert`: an ONNX file written another way.
#pragma once
#include <optional>
#include <string>

#include "quantizer/forms.h"

namespace ingot {

struct ConvertOptions {
  std::string to;                // "qdq" or "qlinear"; empty: as it is, in another opset
  std::optional<int64_t> opset;  // absent: that of the file, or the oldest newer one that serves
  bool external_data = false;
};

// Nothing is written when it fails, or when the file holds nothing to convert (InvalidInput).
FormReport convert_model(const std::string& path, const std::string& output, const ConvertOptions&);

}  // namespace ingot
