// ingot quantize: an ONNX model in 8 bits.
#include <charconv>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "cli/calibration.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "loader/onnx_loader.h"
#include "quantizer/convert.h"
#include "quantizer/quantizer.h"

namespace ingot {
namespace {

struct Options {
  std::string model, output, calib, report, format, weight_only, facts;
  std::string activation = "u8", weight = "s8", method = "minmax", bias = "int32";
  std::string op_types, exclude_op_types, nodes, exclude_nodes;
  bool is_static = false, is_dynamic = false, per_tensor = false, symmetric = false, reduce_range = false;
  bool bias_correction = false, external_data = false, quiet = false;
  double percentile = 99.99;
  std::string smooth_quant = "auto";
  std::optional<double> mixed_precision;
  std::optional<int64_t> opset;
  int64_t block = 0;
  size_t samples = 0;
};

std::vector<std::string> list(const std::string& text) {
  std::vector<std::string> out;
  std::stringstream in(text);
  for (std::string item; std::getline(in, item, ',');)
    if (!item.empty()) out.push_back(item);
  return out;
}

double alpha(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw Error(ErrorKind::InvalidInput, fmt::format("--smooth-quant {}: not a number", text), "auto, off, or 0 to 1");
  return value;
}

QuantizeOptions quantize_options(const Options& o) {
  QuantizeOptions q;
  if (!o.weight_only.empty()) {
    q.select.mode = QuantizeMode::WeightOnly;
    q.weight = o.weight_only == "int4" ? DType::I4 : DType::I8;
    q.block = o.block > 0 || o.weight_only == "int8" ? o.block : 32;
  } else {
    q.select.mode = o.is_dynamic ? QuantizeMode::Dynamic : QuantizeMode::Static;
    q.weight = o.weight == "u8" ? DType::U8 : DType::I8;
  }
  q.select.op_types = list(o.op_types);
  q.select.exclude_op_types = list(o.exclude_op_types);
  q.select.nodes = list(o.nodes);
  q.select.exclude_nodes = list(o.exclude_nodes);
  q.select.bias = bias_recipe_from_name(o.bias).value_or(BiasRecipe::Int32);
  if (o.format == "qdq") q.format = QuantizedFormat::Qdq;
  if (o.format == "qlinear") q.format = QuantizedFormat::QLinear;
  if (o.format == "ir") q.format = QuantizedFormat::Ir;
  q.per_channel = !o.per_tensor;
  q.symmetric = o.symmetric;
  q.reduce_range = o.reduce_range;
  q.activation = o.activation == "s8" ? DType::I8 : DType::U8;
  q.method = range_method_from_name(o.method).value_or(RangeMethod::MinMax);
  q.percentile = o.percentile;
  q.bias_correction = o.bias_correction;
  q.smooth_quant = o.smooth_quant != "off";
  if (q.smooth_quant && o.smooth_quant != "auto") q.smooth_alpha = alpha(o.smooth_quant);
  q.mixed_precision = o.mixed_precision;
  q.external_data = o.external_data;
  q.opset = o.opset;
  return q;
}

void run_with_facts(const Options& o) {
  if (o.format == "ir")
    throw Error(ErrorKind::InvalidInput, "facts are written into an ONNX file", "--format qdq or qlinear");
  const std::vector<std::byte> text = read_file(o.facts);
  const QuantizationFacts facts = facts_from_json({reinterpret_cast<const char*>(text.data()), text.size()});
  ConvertOptions convert;
  convert.to = o.format.empty() ? "qdq" : o.format;
  convert.opset = o.opset;
  convert.external_data = o.external_data;
  const ConvertReport report = quantize_with_facts(o.model, o.output, facts, convert);
  if (!o.report.empty()) atomic_write(o.report, report_json(report));
  if (!o.quiet) fmt::print("{}", report_text(report));
  print_note(fmt::format("{}: {} nodes quantized; written to {}", o.model, report.quantized.size(), o.output));
}

void run(const Options& o) {
  if (!o.facts.empty()) return run_with_facts(o);
  if (!o.is_static && !o.is_dynamic && o.weight_only.empty())
    throw Error(ErrorKind::InvalidInput, "how to quantize is not said",
                "--static --calib DIR, --dynamic, --weight-only int8, or --facts FILE");
  const double start = seconds_now();
  Samples samples;
  if (!o.calib.empty()) samples = read_samples(o.calib, input_ports(*load_onnx(o.model)), o.samples);
  QuantizeReport report;
  {
    Progress bar("quantizing " + o.model);
    const ProgressFn progress = [&](const std::string& what, size_t done, size_t of) {
      bar.update(of ? progress_bar(what, done, of) : what);
    };
    report = quantize_model(o.model, o.output, quantize_options(o), samples, progress);
  }
  if (!o.report.empty()) atomic_write(o.report, report_json(report));
  if (!o.quiet) fmt::print("{}", report_text(report));
  print_note(fmt::format("{}: {} nodes quantized, {} left in fp32; {} -> {}, written to {} in {:.2f} s", o.model,
                         report.quantized.size(), report.skipped.size(), human_bytes(report.bytes_before),
                         report.bytes_after ? human_bytes(report.bytes_after) : "IR", o.output, seconds_now() - start));
}

}  // namespace

void add_quantize(Command& app) {
  Command c = app.subcommand("quantize", "Quantize an ONNX model to 8 bits");
  auto o = std::make_shared<Options>();
  c.option("model", o->model, "an .onnx file").required();
  c.option("-o,--output", o->output, "int8.onnx, or a folder with --format ir").required();
  Command how = c.alternatives("mode");
  how.flag("--static", o->is_static, "scales of activations from calibration data");
  how.flag("--dynamic", o->is_dynamic, "scales of activations measured at run time");
  how.option("--weight-only", o->weight_only, "weights of MatMul and Gemm only").one_of({"int8", "int4"});
  how.option("--facts", o->facts, "scales and zero points from a JSON file");
  c.option("--calib", o->calib, "a folder of .npz or .npy samples, or one .npz with a sample axis in front");
  c.option("--samples", o->samples, "take that many samples at most");
  c.option("--format", o->format, "qdq, qlinear (integer operators) or ir").one_of({"qdq", "qlinear", "ir"});
  bool* per_tensor = &o->per_tensor;
  c.flag("--per-tensor", *per_tensor, "one scale for each weight");
  c.flag("--per-channel", [per_tensor] { *per_tensor = false; }, "one for each output channel (default)");
  c.option("--activation", o->activation, "u8 or s8").one_of({"u8", "s8"}).shown_default("u8");
  c.option("--weight", o->weight, "u8 or s8").one_of({"u8", "s8"}).shown_default("s8");
  c.option("--block", o->block, "elements that share a scale, with --weight-only").positive();
  c.option("--method", o->method, "minmax, percentile, entropy or mse")
      .one_of({"minmax", "percentile", "entropy", "mse"})
      .shown_default("minmax");
  c.option("--percentile", o->percentile, "how much of the values the range holds").shown_default("99.99");
  c.flag("--symmetric", o->symmetric, "activations with the zero point in the middle");
  c.flag("--reduce-range", o->reduce_range, "weights of 7 bits");
  c.option("--bias", o->bias, "int32, fp32 or fp32-trailing")
      .one_of({"int32", "fp32", "fp32-trailing"})
      .shown_default("int32");
  c.flag("--bias-correction", o->bias_correction, "subtract the average error of each channel from the bias");
  c.option("--smooth-quant", o->smooth_quant, "share outliers of activations with weights: auto, off, or alpha")
      .value_name("ALPHA")
      .shown_default("auto");
  c.option("--mixed-precision", o->mixed_precision,
           "leave the noisiest layers in fp32 until outputs reach this SNR in dB");
  c.option("--op-types", o->op_types, "quantize only these operators: MatMul,Conv");
  c.option("--exclude-op-types", o->exclude_op_types, "not these operators");
  c.option("--nodes", o->nodes, "quantize only these nodes; * and ? match any text");
  c.option("--exclude-nodes", o->exclude_nodes, "not these nodes");
  c.option("--report", o->report, "the report as JSON");
  c.flag("--quiet", o->quiet, "no report on stdout");
  c.option("--opset", o->opset, "version of ai.onnx to write");
  c.flag("--external-data", o->external_data, "weights in a file beside the model");
  c.callback([o] { run(*o); });
}

}  // namespace ingot
