// ingot convert: a quantized model from QDQ to integer operators, and back.
#include "quantizer/convert.h"

#include "cli/commands.h"
#include "cli/terminal.h"

namespace ingot {
namespace {

struct Options {
  std::string model, output, to;
  bool external_data = false;
};

void run(const Options& o) {
  const FormReport report = convert_model(o.model, o.output, o.to, o.external_data);
  for (const std::string& line : report.stays) fmt::print("{}\n", line);
  print_note(fmt::format("{}: {} nodes converted, {} stay; written to {}", o.model, report.changed, report.stays.size(),
                         o.output));
}

}  // namespace

void add_convert(CLI::App& app) {
  auto* c = app.add_subcommand("convert", "Convert a quantized ONNX model between QDQ and integer operators");
  auto o = std::make_shared<Options>();
  c->add_option("model", o->model, "an .onnx file")->required();
  c->add_option("-o,--output", o->output, "converted.onnx")->required();
  c->add_option("--to", o->to, "qdq or qlinear")->check(CLI::IsMember({"qdq", "qlinear"}))->required();
  c->add_flag("--external-data", o->external_data, "weights in a file beside the model");
  c->callback([o] { run(*o); });
}

}  // namespace ingot
