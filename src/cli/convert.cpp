// ingot convert: a model in another opset; a quantized one from QDQ to integer operators, and back.
#include "quantizer/convert.h"

#include "base/file.h"
#include "cli/commands.h"
#include "cli/terminal.h"

namespace ingot {
namespace {

struct Options {
  std::string model, output, report, bias, weight;
  ConvertOptions convert;
};

void run(Options o) {
  o.convert.bias = bias_recipe_from_name(o.bias);
  if (!o.weight.empty()) o.convert.weight = o.weight == "u8" ? DType::U8 : DType::I8;
  const ConvertReport report = convert_model(o.model, o.output, o.convert);
  if (!o.report.empty()) atomic_write(o.report, report_json(report));
  if (o.convert.to.empty())
    return print_note(fmt::format("{}: in opset {}; written to {}", o.model, *o.convert.opset, o.output));
  for (const std::string& line : report.form.stays) fmt::print("{}\n", line);
  for (const std::string& line : report.notes) fmt::print("{}\n", line);
  print_note(fmt::format("{}: {} nodes converted, {} stay; written to {}", o.model, report.form.changed,
                         report.form.stays.size(), o.output));
}

}  // namespace

void add_convert(Command& app) {
  Command c = app.subcommand("convert", "Write an ONNX model in another opset or another quantized form");
  auto o = std::make_shared<Options>();
  c.option("model", o->model, "an .onnx file").required();
  c.option("-o,--output", o->output, "converted.onnx").required();
  c.option("--to", o->convert.to, "qdq, qlinear, float, fp16 or bf16")
      .one_of({"qdq", "qlinear", "float", "fp16", "bf16"});
  c.option("--opset", o->convert.opset, "version of ai.onnx to write");
  c.option("--bias", o->bias, "int32, fp32 or fp32-trailing").one_of({"int32", "fp32", "fp32-trailing"});
  c.option("--weight", o->weight, "u8 or s8: the same numbers in the other type").one_of({"u8", "s8"});
  c.option("--facts", o->convert.facts, "with --to float: the scales and zero points that were taken out, as JSON");
  bool* keep_io = &o->convert.keep_io;
  c.flag("--narrow-io", [keep_io] { *keep_io = false; }, "with fp16 and bf16: inputs and outputs too");
  c.option("--report", o->report, "what is quantized in which form, as JSON");
  c.flag("--external-data", o->convert.external_data, "weights in a file beside the model");
  c.callback([o] { run(*o); });
}

}  // namespace ingot
