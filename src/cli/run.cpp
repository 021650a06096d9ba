// ingot run: one run of a model on given or random data.
#include <cmath>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/terminal.h"

namespace ingot {
namespace {

struct Options {
  ModelOptions model;
  InputOptions inputs;
  std::string output;
  int threads = 0;
  double timeout = 0;
};

template <class T>
std::string range(const Array& a) {
  const auto* p = reinterpret_cast<const T*>(a.data.data());
  const size_t n = a.data.size() / sizeof(T);
  if (n == 0) return "empty";
  double least = INFINITY, most = -INFINITY, sum = 0;
  size_t nan = 0;
  for (size_t i = 0; i < n; i++) {
    const double v = static_cast<double>(p[i]);
    if (std::isnan(v)) {
      nan++;
      continue;
    }
    least = std::min(least, v), most = std::max(most, v), sum += v;
  }
  return fmt::format("min {:.6g}  max {:.6g}  mean {:.6g}{}", least, most, sum / static_cast<double>(n - nan),
                     nan ? fmt::format("  NaN {}", nan) : "");
}

std::string summary(const Array& a) {
  switch (a.dtype) {
    case DType::F32:
      return range<float>(a);
    case DType::F64:
      return range<double>(a);
    case DType::F16:
      return range<_Float16>(a);
    case DType::I64:
      return range<int64_t>(a);
    case DType::I32:
      return range<int32_t>(a);
    case DType::I16:
      return range<int16_t>(a);
    case DType::I8:
      return range<int8_t>(a);
    case DType::U8:
    case DType::Bool:
      return range<uint8_t>(a);
    default:
      return human_bytes(static_cast<int64_t>(a.data.size()));
  }
}

void run(const Options& o) {
  if (!o.output.empty() && !o.output.ends_with(".npz") && !o.output.ends_with(".npy"))
    throw Error(ErrorKind::InvalidInput, fmt::format("{}: neither .npz nor .npy", o.output), "--output out.npz");
  Model model(o.model, false);
  if (o.output.ends_with(".npy") && model.outputs().size() != 1)
    throw Error(
        ErrorKind::InvalidInput,
        fmt::format("{}: an .npy file holds one array, the model has {} outputs", o.output, model.outputs().size()),
        "--output out.npz holds them all");
  std::vector<Array> inputs = o.inputs.read(model.inputs(), o.model.parsed_shapes());
  model.start(o.threads);
  NamedArrays outputs = model.run(inputs, o.timeout);
  if (o.output.ends_with(".npz"))
    write_file(o.output, format_npz(outputs));
  else if (!o.output.empty())
    write_file(o.output, format_npy(outputs.front().second));
  else
    for (const auto& [name, array] : outputs)
      fmt::print("{}: {}{}  {}\n", name, ingot::name(array.dtype), str(to_shape(array.dims)), summary(array));
}

}  // namespace

void add_run(Command& app) {
  Command command = app.subcommand("run", "Run a model once");
  auto options = std::make_shared<Options>();
  options->model.add_to(command);
  options->inputs.add_to(command);
  command.option("--output", options->output, "out.npz, or out.npy for one output; a summary when left out");
  command.option("--threads", options->threads, "0: what the process may use").between(0, 1024).shown_default("0");
  command.option("--timeout", options->timeout, "seconds the run may take; exit code 8 after that").positive();
  command.callback([options] { run(*options); });
}

}  // namespace ingot
