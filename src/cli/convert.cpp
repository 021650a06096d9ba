// ingot convert: a model in another opset; a quantized one from QDQ to integer operators, and back.
#include "quantizer/convert.h"

#include "cli/commands.h"
#include "cli/terminal.h"

namespace ingot {
namespace {

struct Options {
  std::string model, output;
  ConvertOptions convert;
};

void run(const Options& o) {
  const FormReport report = convert_model(o.model, o.output, o.convert);
  for (const std::string& line : report.stays) fmt::print("{}\n", line);
  const std::string nodes = o.convert.to.empty()
                                ? fmt::format("in opset {}", *o.convert.opset)
                                : fmt::format("{} nodes converted, {} stay", report.changed, report.stays.size());
  print_note(fmt::format("{}: {}; written to {}", o.model, nodes, o.output));
}

}  // namespace

void add_convert(CLI::App& app) {
  auto* c = app.add_subcommand("convert", "Write an ONNX model in another opset or another quantized form");
  auto o = std::make_shared<Options>();
  c->add_option("model", o->model, "an .onnx file")->required();
  c->add_option("-o,--output", o->output, "converted.onnx")->required();
  c->add_option("--to", o->convert.to, "qdq or qlinear")->check(CLI::IsMember({"qdq", "qlinear"}));
  c->add_option("--opset", o->convert.opset, "version of ai.onnx to write");
  c->add_flag("--external-data", o->convert.external_data, "weights in a file beside the model");
  c->callback([o] { run(*o); });
}

}  // namespace ingot
