#include "quantizer/convert.h"

#include <algorithm>

#include "base/error.h"
#include "loader/onnx_loader.h"
#include "quantizer/marks.h"
#include "writer/downgrade.h"
#include "writer/onnx_graph.h"
#include "writer/onnx_writer.h"

namespace ingot {
namespace {

constexpr int64_t kOldestOfMarks = 13;  // the first opset with scales along an axis

void check(const std::string& output, const ConvertOptions& o) {
  auto bad = [](const std::string& what, const std::string& hint) { throw Error(ErrorKind::InvalidInput, what, hint); };
  if (o.to.empty() && !o.opset) bad("nothing to convert to", "--to qdq, --to qlinear, or --opset N");
  if (!o.to.empty() && o.to != "qdq" && o.to != "qlinear")
    bad(fmt::format("'{}' is no form of a quantized model", o.to), "qdq or qlinear");
  if (o.to.empty() && (o.bias || o.weight)) bad("bias and weight type are of quantized models", "--to qdq or qlinear");
  if (o.weight && !is_byte(*o.weight)) bad(fmt::format("weights of {}", name(*o.weight)), "s8 or u8");
  if (o.opset) check_opset(*o.opset);
  if (output.empty()) bad("no file to write to", "-o converted.onnx");
}

void change_form(Graph& graph, const ConvertOptions& o, ConvertReport& report) {
  check_quantization(graph);
  infer_types(graph);
  if (o.to == "qdq") report.form = to_qdq(graph);
  settle_marks(graph);
  if (o.weight) set_weight_type(graph, *o.weight);
  if (o.bias) report.notes = set_bias(graph, *o.bias);
  const Graph marked = deep_copy(graph);
  if (o.to == "qlinear") report.form = to_integer_operators(graph);
  describe(marked, graph, report);
  if (report.quantized.empty())
    throw Error(ErrorKind::InvalidInput, fmt::format("holds nothing to convert to {}", o.to), "it is not quantized");
}

}  // namespace

ConvertReport convert_model(const std::string& path, const std::string& output, const ConvertOptions& options) {
  check(output, options);
  OnnxWriteOptions write{{}, options.external_data, options.opset};
  const auto graph = load_onnx(path, &write.opsets);
  ConvertReport report{.model = path, .output = output};
  try {
    if (!options.to.empty()) change_form(*graph, options, report);
    if (!write.opset) write.opset = oldest_opset(*graph, std::max(kOldestOfMarks, write.opsets[""]));
    write_onnx(*graph, output, write);
  } catch (const Error& e) {
    throw e.kind() == ErrorKind::Io ? e : e.at(path);
  }
  return report;
}

}  // namespace ingot
