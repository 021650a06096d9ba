#include "quantizer/convert.h"

#include "base/error.h"
#include "loader/onnx_loader.h"
#include "quantizer/runner.h"
#include "writer/onnx_writer.h"

namespace ingot {
namespace {

void check(const std::string& output, const ConvertOptions& o) {
  if (o.to.empty() && !o.opset)
    throw Error(ErrorKind::InvalidInput, "nothing to convert to", "--to qdq, --to qlinear, or --opset N");
  if (!o.to.empty() && o.to != "qdq" && o.to != "qlinear")
    throw Error(ErrorKind::InvalidInput, fmt::format("'{}' is no form of a quantized model", o.to), "qdq or qlinear");
  if (o.opset) check_opset(*o.opset);
  if (output.empty()) throw Error(ErrorKind::InvalidInput, "no file to write to", "-o converted.onnx");
}

FormReport change_form(Graph& graph, const std::string& to) {
  check_quantization(graph);
  infer_types(graph);
  FormReport report = to == "qdq" ? to_qdq(graph) : to_integer_operators(graph);
  if (report.changed == 0)
    throw Error(ErrorKind::InvalidInput, fmt::format("holds nothing to convert to {}", to),
                report.stays.empty() ? "it is not quantized, or in this form already" : report.stays[0]);
  return report;
}

}  // namespace

FormReport convert_model(const std::string& path, const std::string& output, const ConvertOptions& options) {
  check(output, options);
  OnnxWriteOptions write{{}, options.external_data, options.opset};
  const auto graph = load_onnx(path, &write.opsets);
  FormReport report;
  try {
    if (!options.to.empty()) report = change_form(*graph, options.to);
    write_onnx(*graph, output, write);
  } catch (const Error& e) {
    throw e.kind() == ErrorKind::Io ? e : e.at(path);
  }
  return report;
}

}  // namespace ingot
