#include "quantizer/convert.h"

#include "base/error.h"
#include "loader/onnx_loader.h"
#include "quantizer/runner.h"
#include "writer/onnx_writer.h"

namespace ingot {

FormReport convert_model(const std::string& path, const std::string& output, const std::string& to,
                         bool external_data) {
  if (to != "qdq" && to != "qlinear")
    throw Error(ErrorKind::InvalidInput, fmt::format("'{}' is no form of a quantized model", to), "qdq or qlinear");
  if (output.empty()) throw Error(ErrorKind::InvalidInput, "no file to write to", "-o converted.onnx");
  OnnxWriteOptions write{{}, external_data};
  const auto graph = load_onnx(path, &write.opsets);
  FormReport report;
  try {
    check_quantization(*graph);
    infer_types(*graph);
    report = to == "qdq" ? to_qdq(*graph) : to_integer_operators(*graph);
  } catch (const Error& e) {
    throw e.at(path);
  }
  if (report.changed == 0)
    throw Error(ErrorKind::InvalidInput, fmt::format("{}: holds nothing to convert to {}", path, to),
                report.stays.empty() ? "it is not quantized, or in this form already" : report.stays[0]);
  write_onnx(*graph, output, write);
  return report;
}

}  // namespace ingot
