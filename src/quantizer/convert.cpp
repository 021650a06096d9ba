#include "quantizer/convert.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
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
  if (!o.to.empty() && o.to != "qdq" && o.to != "qlinear" && o.to != "float")
    bad(fmt::format("'{}' is no form of a model", o.to), "qdq, qlinear or float");
  if (!o.facts.empty() && o.to != "float") bad("facts are written when marks are taken out", "--to float");
  if ((o.to.empty() || o.to == "float") && (o.bias || o.weight))
    bad("bias and weight type are of quantized models", "--to qdq or qlinear");
  if (o.weight && !is_byte(*o.weight)) bad(fmt::format("weights of {}", name(*o.weight)), "s8 or u8");
  if (o.opset) check_opset(*o.opset);
  if (output.empty()) bad("no file to write to", "-o converted.onnx");
}

// Marks as they should be -> the form that is asked for.
void finish(Graph& graph, const ConvertOptions& o, ConvertReport& report) {
  settle_marks(graph);
  if (o.weight) set_weight_type(graph, *o.weight);
  if (o.bias) report.notes = set_bias(graph, *o.bias);
  const Graph marked = deep_copy(graph);
  if (o.to == "qlinear") report.form = to_integer_operators(graph);
  describe(marked, graph, report);
  if (report.quantized.empty())
    throw Error(ErrorKind::InvalidInput, fmt::format("holds nothing to convert to {}", o.to), "it is not quantized");
}

void change_form(Graph& graph, const ConvertOptions& o, ConvertReport& report) {
  check_quantization(graph);
  infer_types(graph);
  if (o.to == "qdq") report.form = to_qdq(graph);
  finish(graph, o, report);
}

void take_out_marks(Graph& graph, const ConvertOptions& o, ConvertReport& report) {
  check_quantization(graph);
  infer_types(graph);
  report.form = to_qdq(graph);
  const QuantizationFacts facts = lift(graph);
  if (facts.nodes.empty() && facts.tensors.empty())
    throw Error(ErrorKind::InvalidInput, "holds nothing to convert to float", "it is not quantized");
  report.form.changed = static_cast<int64_t>(facts.nodes.size());
  for (const Node& n : graph.nodes)
    if (n.is("DequantizeLinear")) report.form.stays.push_back(fmt::format("{}: stays, facts cannot say it", n.label()));
  if (!o.facts.empty()) atomic_write(o.facts, facts_json(facts));
}

void write(const Graph& graph, const std::string& output, OnnxWriteOptions options) {
  if (!options.opset) options.opset = oldest_opset(graph, std::max(kOldestOfMarks, options.opsets[""]));
  write_onnx(graph, output, options);
}

}  // namespace

ConvertReport convert_model(const std::string& path, const std::string& output, const ConvertOptions& options) {
  check(output, options);
  OnnxWriteOptions write_options{{}, options.external_data, options.opset};
  const auto graph = load_onnx(path, &write_options.opsets);
  ConvertReport report{.model = path, .output = output};
  try {
    if (options.to == "float")
      take_out_marks(*graph, options, report);
    else if (!options.to.empty())
      change_form(*graph, options, report);
    write(*graph, output, write_options);
  } catch (const Error& e) {
    throw e.kind() == ErrorKind::Io ? e : e.at(path);
  }
  return report;
}

ConvertReport quantize_with_facts(const std::string& path, const std::string& output, const QuantizationFacts& facts,
                                  const ConvertOptions& options) {
  check(output, options);
  OnnxWriteOptions write_options{{}, options.external_data, options.opset};
  const auto graph = load_onnx(path, &write_options.opsets);
  ConvertReport report{.model = path, .output = output};
  ConvertOptions all = options;
  if (!all.bias) all.bias = facts.bias;
  try {
    infer_types(*graph);
    quantize(*graph, facts);
    finish(*graph, all, report);
    write(*graph, output, write_options);
  } catch (const Error& e) {
    throw e.kind() == ErrorKind::Io ? e : e.at(path);
  }
  return report;
}

}  // namespace ingot
