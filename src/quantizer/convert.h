// `ingot convert`: QDQ to integer operators and back, on any ONNX file.
#pragma once
#include <string>

#include "quantizer/forms.h"

namespace ingot {

// `to`: "qdq" or "qlinear". Nothing is written when it fails, or when the file holds nothing to convert (InvalidInput).
FormReport convert_model(const std::string& path, const std::string& output, const std::string& to,
                         bool external_data = false);

}  // namespace ingot
