// ingot bench: how long a run takes, as minimum, median and 90th percentile.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/fma_peak.h"
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

Result measure(Model& model, const Options& o, int threads, std::vector<Array>& inputs) {
  Result r;
  const double start = seconds_now();
  model.start(threads);
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

void print_table(const std::vector<Result>& results, double peak) {
  fmt::print("{:>7} {:>10} {:>10} {:>10} {:>10} {:>7}\n", "threads", "min ms", "median ms", "p90 ms", "cpu min",
             "runs");
  for (const Result& r : results)
    fmt::print("{:>7} {:>10.3f} {:>10.3f} {:>10.3f} {:>10.3f} {:>7}\n", r.threads, r.min * 1e3, r.median * 1e3,
               r.p90 * 1e3, r.cpu * 1e3, r.runs);
  if (peak > 0) fmt::print("fp32 FMA peak of one core: {:.1f} GMAC/s\n", peak);
}

void print_json(const std::string& path, const std::vector<Result>& results, const std::vector<Port>& ports,
                const std::vector<Array>& inputs, double peak) {
  nlohmann::ordered_json json;
  json["model"] = path;
  for (size_t i = 0; i < ports.size(); i++)
    json["inputs"].push_back({{"name", ports[i].name}, {"dtype", name(ports[i].dtype)}, {"shape", inputs[i].dims}});
  for (const Result& r : results)
    json["results"].push_back({{"threads", r.threads},
                               {"runs", r.runs},
                               {"compile_s", r.compile},
                               {"wall_min_ms", r.min * 1e3},
                               {"wall_median_ms", r.median * 1e3},
                               {"wall_p90_ms", r.p90 * 1e3},
                               {"cpu_min_ms", r.cpu * 1e3}});
  if (peak > 0) json["fma_peak_gmacs"] = peak;
  fmt::print("{}\n", json.dump(2));
}

void bench(const Options& o) {
  Model model(o.model, !o.dynamic);
  InputOptions source = o.inputs;
  source.random = true;  // files where given, random data elsewhere
  std::vector<Array> inputs = source.read(model.inputs(), o.model.parsed_shapes());
  std::vector<Result> results;
  for (int threads : o.threads) results.push_back(measure(model, o, threads, inputs));
  const double peak = o.peak ? fma_peak(0.3) : 0;
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
  command.flag("--peak", options->peak, "measure the fp32 FMA peak of a core too");
  command.flag("--json", options->json, "print JSON");
  command.callback([options] { bench(*options); });
}

}  // namespace ingot
