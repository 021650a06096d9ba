#include "cli/model.h"

#include <filesystem>

#include "base/error.h"
#include "base/limits.h"
#include "base/stop.h"
#include "base/target.h"
#include "cli/terminal.h"
#include "passes/autocast.h"
#include "runtime/thread_pool.h"

namespace ingot {
namespace {

// "input:1x128", "1x?x3": the name may hold colons, the shape cannot.
std::pair<std::string, std::vector<int64_t>> parse_shape(const std::string& text) {
  const size_t colon = text.rfind(':');
  auto bad = [&](const std::string& why) {
    return Error(ErrorKind::InvalidInput, fmt::format("--shape {}: {}", text, why),
                 "write it as name:1x128, with ? for a dim that stays free");
  };
  if (colon == std::string::npos || colon == 0) throw bad("no input name");
  std::vector<int64_t> dims;
  std::string rest = text.substr(colon + 1);
  while (!rest.empty()) {
    const size_t x = rest.find('x');
    const std::string part = rest.substr(0, x);
    rest = x == std::string::npos ? "" : rest.substr(x + 1);
    if (part == "?" || part == "-1") {
      dims.push_back(-1);
      continue;
    }
    if (part.empty() || part.size() > 15 || part.find_first_not_of("0123456789") != std::string::npos)
      throw bad(fmt::format("'{}' is not a size", part));
    dims.push_back(std::stoll(part));
  }
  return {text.substr(0, colon), dims};
}

}  // namespace

void ModelOptions::add_to(Command& app) {
  app.option("model", path, "an .onnx file, an IR folder or a model.so").required();
  app.option("-O", opt_level, "0: as written, no fusions; 3: everything").between(0, 3).shown_default("3");
  app.option("--march", march, "native, " + target_names() + "; several for a model.so, commas between")
      .shown_default("native");
  app.option("--pattern", patterns, "switch a fusion: name=off").value_name("NAME=on|off");
  app.option("--autocast", autocast, "lower precision: bf16, fp16, int8, int8-weights or int4-weights");
  app.option("--shape", shapes, "the shape of an input: name:1x128").value_name("NAME:DIMS");
  app.flag("--independent-dims", independent_dims, "inputs may differ in dims that share a name");
  app.option("--limit", limits, "how much the model may take:\n" + describe_limits()).value_name("NAME=NUMBER");
}

CompileOptions ModelOptions::compile_options() const {
  CompileOptions options;
  options.opt_level = opt_level;
  options.march = march;
  options.independent_dims = independent_dims;
  for (const std::string& l : limits) set_limit(options.limits, l);
  for (const std::string& p : patterns) {
    const size_t eq = p.find('=');
    const std::string value = eq == std::string::npos ? "" : p.substr(eq + 1);
    if (eq == 0 || (value != "on" && value != "off"))
      throw Error(ErrorKind::InvalidInput, fmt::format("--pattern {}: neither on nor off", p),
                  "for instance --pattern gelu=off");
    options.patterns[p.substr(0, eq)] = value == "on";
  }
  return options;
}

std::map<std::string, std::vector<int64_t>> ModelOptions::parsed_shapes() const {
  std::map<std::string, std::vector<int64_t>> out;
  for (const std::string& s : shapes) out.insert(parse_shape(s));
  return out;
}

Model::Model(const ModelOptions& model, bool fix_shapes) : path_(model.path), options_(model.compile_options()) {
  if (fix_shapes) options_.shapes = model.parsed_shapes();
  if (is_library_file(path_)) {
    if (!model.autocast.empty())
      throw Error(ErrorKind::InvalidInput, fmt::format("--autocast: {} is compiled already", path_),
                  "compile the .onnx file or the IR folder it was made from");
    SessionOptions one;
    one.threads = 1;
    library_ = std::make_unique<LibraryModel>(path_, one);
    inputs_ = library_->inputs();
    outputs_ = library_->outputs();
    return;
  }
  const Progress progress("reading " + path_);
  auto lowered = [precision = model.autocast](std::shared_ptr<Graph> graph) {
    return precision.empty() ? graph : std::make_shared<Graph>(autocast(*graph, precision));
  };
  graph_ = lowered(prepare_model(path_, options_, &report_));
  if (!std::filesystem::is_directory(path_))
    again_ = [lowered, path = path_](const CompileOptions& other) { return lowered(prepare_model(path, other)); };
  inputs_ = input_ports(*graph_);
  outputs_ = output_ports(*graph_);
}

void Model::start(int threads, bool wait) {
  threads_ = default_threads(threads).threads;
  SessionOptions options;
  options.threads = threads;
  options.limits = options_.limits;
  if (!graph_) {
    library_ = std::make_unique<LibraryModel>(path_, options);
    return;
  }
  const Progress progress("compiling " + path_);
  options.warn = [](const std::string& text) { fmt::print(stderr, "warning: {}\n", text); };
  CompileOptions compile = options_;
  compile.wait = wait;
  session_ = make_session(graph_, compile, options, again_);
  threads_ = session_->threads();
}

void Model::run_again(std::vector<Array>& inputs, NamedArrays& outputs) {
  std::vector<TensorView> views;
  views.reserve(inputs.size());
  for (Array& a : inputs) views.push_back(a.view());
  outputs.resize(outputs_.size());
  const OutputAllocator allocate = [&](size_t i, DType dtype, const std::vector<int64_t>& dims) {
    Array& a = outputs[i].second;
    int64_t elements = 1;
    for (int64_t d : dims) elements *= d;
    a.dtype = dtype;
    a.dims = dims;
    // An empty output needs an address too.
    a.data.reserve(1);
    a.data.resize(static_cast<size_t>(byte_size(dtype, elements)));
    return static_cast<void*>(a.data.data());
  };
  if (session_)
    session_->run(views, allocate);
  else
    library_->run(views, allocate);
  for (size_t i = 0; i < outputs.size(); i++) outputs[i].first = outputs_[i].name;
}

NamedArrays Model::run(std::vector<Array>& inputs, double timeout) {
  NamedArrays out;
  Stop stop("the run", "--timeout");
  stop.after(timeout);
  const StopScope scope(stop);
  run_again(inputs, out);
  return out;
}

std::string describe(const Port& port) {
  return fmt::format("{}: {}{}", port.name, name(port.dtype), port.shape ? str(*port.shape) : "[...]");
}

}  // namespace ingot
