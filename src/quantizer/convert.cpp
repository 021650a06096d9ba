#include "quantizer/convert.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "loader/onnx_loader.h"
#include "passes/passes.h"
#include "quantizer/marks.h"
#include "quantizer/narrow.h"
#include "writer/downgrade.h"
#include "writer/onnx_graph.h"
#include "writer/onnx_writer.h"

namespace ingot {
namespace {

constexpr int64_t kOldestOfMarks = 13;  // the first opset with scales along an axis

void check(const std::string& output, const ConvertOptions& o) {
  auto bad = [](const std::string& what, const std::string& hint) { throw Error(ErrorKind::InvalidInput, what, hint); };
  if (o.to.empty() && !o.opset) bad("nothing to convert to", "--to qdq, --to qlinear, or --opset N");
  static const std::set<std::string> forms = {"", "qdq", "qlinear", "float", "fp16", "bf16"};
  if (!forms.contains(o.to)) bad(fmt::format("'{}' is no form of a model", o.to), "qdq, qlinear, float, fp16 or bf16");
  if (!o.facts.empty() && o.to != "float") bad("facts are written when marks are taken out", "--to float");
  if ((o.to.empty() || o.to == "float") && (o.bias || o.weight))
    bad("bias and weight type are of quantized models", "--to qdq or qlinear");
  if (o.weight && !is_byte(*o.weight)) bad(fmt::format("weights of {}", name(*o.weight)), "s8 or u8");
  if (o.opset) check_opset(*o.opset);
  if (output.empty()) bad("no file to write to", "-o converted.onnx");
}

// Marks as they should be -> the form that is asked for.
void finish(Graph& graph, const ConvertOptions& o, ConvertReport& report, bool keep_bias = false) {
  settle_marks(graph);
  if (o.weight) set_weight_type(graph, *o.weight);
  if (o.bias) report.notes = set_bias(graph, *o.bias);
  if (o.to == "qlinear") set_unsigned_activations(graph);
  const Graph marked = deep_copy(graph);
  if (o.to == "qlinear")
    report.form = to_integer_operators(graph, keep_bias);
  else
    rows_to_integer_operators(graph);
  describe(marked, graph, report);
  if (report.quantized.empty())
    throw Error(ErrorKind::InvalidInput, fmt::format("holds nothing to convert to {}", o.to), "it is not quantized");
}

void change_form(Graph& graph, const ConvertOptions& o, ConvertReport& report) {
  check_quantization(graph);
  infer_types(graph);
  if (o.to == "qdq") report.form = to_qdq(graph);
  finish(graph, o, report, o.bias && *o.bias != BiasRecipe::Int32);
}

void take_out_marks(Graph& graph, const ConvertOptions& o, ConvertReport& report) {
  check_quantization(graph);
  infer_types(graph);
  report.form = to_qdq(graph);
  const QuantizationFacts facts = lift(graph);
  if (facts.nodes.empty() && facts.tensors.empty())
    throw Error(ErrorKind::InvalidInput, "holds nothing to convert to float", "it is not quantized");
  report.form.changed = static_cast<int64_t>(facts.nodes.size());
  if (o.facts.empty()) {
    fold_constants(graph, FoldWeights::kAll);  // weights whose scales facts cannot say
    return;
  }
  for (const Node& n : graph.nodes)
    if (n.is("DequantizeLinear")) report.form.stays.push_back(fmt::format("{}: stays, facts cannot say it", n.label()));
  atomic_write(o.facts, facts_json(facts));
}

// bf16 came to convolutions, pooling and others with opset 22.
constexpr int64_t kUsefulForBf16 = 22;

void make_narrow(Graph& graph, const ConvertOptions& o, OnnxWriteOptions& write, ConvertReport& report) {
  infer_types(graph);
  const DType to = o.to == "fp16" ? DType::F16 : DType::BF16;
  if (!write.opset) write.opset = std::max(to == DType::BF16 ? kUsefulForBf16 : kOldestOfMarks, write.opsets[""]);
  NarrowReport made = narrow(graph, {to, *write.opset, o.keep_io});
  if (made.changed == 0)
    throw Error(ErrorKind::InvalidInput, fmt::format("holds nothing to convert to {}", o.to),
                made.stays.empty()
                    ? "no node computes in f32"
                    : fmt::format("{} '{}' {}", made.stays[0].op, made.stays[0].name, made.stays[0].reason));
  report.form.changed = made.changed;
  for (const SkippedNode& s : made.stays)
    report.form.stays.push_back(fmt::format("{} '{}': stays f32, {}", s.op, s.name, s.reason));
  report.unquantized = std::move(made.stays);
  report.notes = std::move(made.notes);
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
    if (options.to == "fp16" || options.to == "bf16")
      make_narrow(*graph, options, write_options, report);
    else if (options.to == "float")
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
