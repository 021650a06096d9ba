// ingot bench: how long a run takes, as minimum, median and 90th percentile.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/peak.h"
#include "cli/summary.h"
#include "cli/terminal.h"

namespace ingot {
namespace {

struct Options {
  ModelOptions model;
  InputOptions inputs;
  std::vector<int> threads = {0};
  int warmup = 3;
  int repeat = 0;
  double seconds = 2;
  bool dynamic = false, json = false, peak = false;
};

struct Result {
  int threads = 0;
  size_t runs = 0;
  double compile = 0, min = 0, median = 0, p90 = 0, cpu = 0;  // seconds; cpu: least process CPU time of a run
};

// What one core can do, in 1e9 multiply-adds per second, and what a run of the model asks for.
struct Peak {
  double gmacs = 0, work = 0;  // 0: not known
  bool bytes = false;          // of 8-bit integers
  std::string unit;

  // With one thread CPU time decides: others that run on the machine do not count.
  double share(const Result& r) const { return work / (r.threads == 1 ? r.cpu : r.min) / (gmacs * r.threads); }
};

// The code that was measured is that of --march, or of the CPU; a model with products of integers counts by their peak.
Peak measure_peak(const Model& model, const std::vector<Array>& inputs) {
  const Target& target = model.is_library() ? cpu_target() : session_target(model.compile_options());
  std::optional<MultiplyAdds> work;
  if (!model.is_library()) {
    std::vector<std::vector<int64_t>> dims;
    dims.reserve(inputs.size());
    for (const Array& a : inputs) dims.push_back(a.dims);
    work = multiply_adds(*model.graph(), dims);
  }
  Peak peak;
  peak.bytes = work && work->bytes > 0;
  peak.unit = peak.bytes ? byte_unit(target) : fp32_unit(target);
  peak.gmacs = peak.bytes ? byte_peak(target, 0.3) : fp32_peak(target, 0.3);
  if (work) peak.work = (work->floats + work->bytes) * 1e-9;
  return peak;
}

Result measure(Model& model, const Options& o, int threads, std::vector<Array>& inputs) {
  Result r;
  const double start = seconds_now();
  model.start(threads, true);
  NamedArrays outputs;
  model.run_again(inputs, outputs);  // plans the shapes
  r.compile = seconds_now() - start;
  r.threads = model.threads();
  Progress progress(fmt::format("measuring with {} thread(s)", r.threads));
  for (int i = 1; i < o.warmup; i++) model.run_again(inputs, outputs);
  std::vector<double> wall, cpu;
  const double end = seconds_now() + o.seconds;
  while (o.repeat > 0 ? wall.size() < static_cast<size_t>(o.repeat) : (seconds_now() < end || wall.size() < 5)) {
    const double w = seconds_now(), c = cpu_seconds_now();
    model.run_again(inputs, outputs);
    wall.push_back(seconds_now() - w);
    cpu.push_back(cpu_seconds_now() - c);
  }
  std::sort(wall.begin(), wall.end());
  r.runs = wall.size();
  r.min = wall.front();
  r.median = wall[wall.size() / 2];
  r.p90 = wall[std::min(wall.size() - 1, wall.size() * 9 / 10)];
  r.cpu = *std::min_element(cpu.begin(), cpu.end());
  return r;
}

void print_table(const std::vector<Result>& results, const std::optional<Peak>& peak) {
  fmt::print("{:>7} {:>10} {:>10} {:>10} {:>10} {:>7}\n", "threads", "min ms", "median ms", "p90 ms", "cpu min",
             "runs");
  for (const Result& r : results)
    fmt::print("{:>7} {:>10.3f} {:>10.3f} {:>10.3f} {:>10.3f} {:>7}\n", r.threads, r.min * 1e3, r.median * 1e3,
               r.p90 * 1e3, r.cpu * 1e3, r.runs);
  if (!peak) return;
  if (peak->work == 0)
    fmt::print("peak of one core: {:.1f} GMAC/s ({})\n", peak->gmacs, peak->unit);
  else
    for (const Result& r : results)
      fmt::print("share of peak with {} thread(s): {:.0f} % of {:.1f} GMAC/s ({})\n", r.threads, 100 * peak->share(r),
                 peak->gmacs * r.threads, peak->unit);
}

void print_json(const std::string& path, const std::vector<Result>& results, const std::vector<Port>& ports,
                const std::vector<Array>& inputs, const std::optional<Peak>& peak) {
  nlohmann::ordered_json json;
  json["model"] = path;
  for (size_t i = 0; i < ports.size(); i++)
    json["inputs"].push_back({{"name", ports[i].name}, {"dtype", name(ports[i].dtype)}, {"shape", inputs[i].dims}});
  for (const Result& r : results) {
    json["results"].push_back({{"threads", r.threads},
                               {"runs", r.runs},
                               {"compile_s", r.compile},
                               {"wall_min_ms", r.min * 1e3},
                               {"wall_median_ms", r.median * 1e3},
                               {"wall_p90_ms", r.p90 * 1e3},
                               {"cpu_min_ms", r.cpu * 1e3}});
    if (peak && peak->work > 0) json["results"].back()["share_of_peak"] = peak->share(r);
  }
  if (peak) {
    json["peak"] = {{"gmacs", peak->gmacs}, {"type", peak->bytes ? "int8" : "fp32"}, {"unit", peak->unit}};
    if (peak->work > 0) json["gmac"] = peak->work;
  }
  fmt::print("{}\n", json.dump(2));
}

void bench(const Options& o) {
  Model model(o.model, !o.dynamic);
  InputOptions source = o.inputs;
  source.random = true;  // files where given, random data elsewhere
  std::vector<Array> inputs = source.read(model.inputs(), o.model.parsed_shapes());
  std::vector<Result> results;
  results.reserve(o.threads.size());
  for (int threads : o.threads) results.push_back(measure(model, o, threads, inputs));
  std::optional<Peak> peak;
  if (o.peak) peak = measure_peak(model, inputs);
  if (o.json)
    print_json(o.model.path, results, model.inputs(), inputs, peak);
  else
    print_table(results, peak);
}

}  // namespace

void add_bench(Command& app) {
  Command command = app.subcommand("bench", "Measure how long a run takes");
  auto options = std::make_shared<Options>();
  options->model.add_to(command);
  options->inputs.add_to(command);
  command.option("--threads", options->threads, "one or more numbers: 1,2")
      .separated_by(',')
      .between(0, 1024)
      .shown_default("0");
  command.option("--warmup", options->warmup, "runs before measuring").between(1, 1000000).shown_default("3");
  command.option("--repeat", options->repeat, "runs to measure (default: as many as fit --seconds)")
      .between(1, 100000000);
  command.option("--seconds", options->seconds, "how long to measure").between(0.0, 86400.0).shown_default("2");
  command.flag("--dynamic", options->dynamic, "keep dims free that --shape would fix when compiling");
  command.flag("--peak", options->peak, "measure what a core can do at most, and say which share of it the model has");
  command.flag("--json", options->json, "print JSON");
  command.callback([options] { bench(*options); });
}

}  // namespace ingot
