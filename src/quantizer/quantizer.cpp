#include "quantizer/quantizer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "compiler/compiler.h"
#include "emitter/ir_folder.h"
#include "loader/onnx_loader.h"
#include "quantizer/choose_facts.h"
#include "quantizer/forms.h"
#include "quantizer/refine.h"
#include "quantizer/twins.h"
#include "quantizer/widen.h"
#include "writer/onnx_writer.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {

constexpr size_t kCompared = 16;  // samples on which the quantized model is measured

void check_options(const QuantizeOptions& o, const Samples& samples) {
  const bool is_static = o.select.mode == QuantizeMode::Static;
  auto bad = [](const std::string& what, const std::string& hint) { throw Error(ErrorKind::InvalidInput, what, hint); };
  if (is_static && samples.count == 0)
    bad("static quantization needs calibration data", "give samples with --calib, or quantize with --dynamic");
  if (samples.count == 0 && (o.bias_correction || o.smooth_alpha || o.mixed_precision))
    bad("bias correction, smoothing by a given alpha and mixed precision need calibration data",
        "give samples with --calib");
  if (o.activation != DType::U8 && o.activation != DType::I8)
    bad("activations are quantized to u8 or s8", "--activation u8 or s8");
  if (o.select.mode == QuantizeMode::Dynamic && o.activation != DType::U8)
    bad("DynamicQuantizeLinear makes u8 only", "--activation u8, or --static");
  if (o.percentile <= 50 || o.percentile > 100)
    bad("a percentile lies above 50 and is at most 100", "--percentile 99.99");
  if (o.smooth_alpha && !(*o.smooth_alpha >= 0 && *o.smooth_alpha <= 1))
    bad("alpha lies in [0, 1]", "--smooth-quant 0.5");
  if (o.opset) check_opset(*o.opset);
  if (o.block < 0) bad("a block has at least one element", "--block 32");
}

class ModelQuantizer {
 public:
  ModelQuantizer(const std::string& path, const QuantizeOptions& o, const Samples& samples, const ProgressFn& progress)
      : o_(o), samples_(samples), progress_(progress) {
    check_options(o, samples);
    std::error_code error;
    if (!fs::exists(path, error)) throw Error(ErrorKind::Io, path + ": there is no such file");
    if (fs::is_directory(path, error))
      throw Error(ErrorKind::Unsupported, path + " is a folder", "quantize the .onnx file it was made from");
    progress("reading " + path, 0, 0);
    graph_ = std::move(*load_onnx(path, &opsets_));
    if (widen(graph_)) report_.notes.push_back("a model of 16-bit floats: what is not quantized is computed in f32");
    clean_up(graph_);
    original_ = deep_copy(graph_);
    report_.model = path;
    report_.bytes_before = static_cast<int64_t>(fs::file_size(path, error));
  }

  void run() {
    select();
    if (selection_.nodes.empty())
      throw Error(ErrorKind::InvalidInput, "there is nothing to quantize in the model",
                  selection_.skipped.empty() ? "it has no MatMul, Gemm or Conv"
                                             : fmt::format("{} '{}': {}", selection_.skipped[0].op,
                                                           selection_.skipped[0].name, selection_.skipped[0].reason));
    if (o_.smooth_quant && o_.select.mode != QuantizeMode::WeightOnly) {
      const int64_t count = smooth(graph_, selection_, o_.smooth_alpha, o_.per_channel, samples_, progress_);
      if (count > 0) {
        report_.notes.push_back(fmt::format("smoothed {} activations", count));
        select();
      }
    }
    choose();
    if (o_.mixed_precision) mix_precision(*o_.mixed_precision);
    if (o_.bias_correction) {
      const int64_t count = correct_bias(graph_, selection_, facts_, samples_, progress_);
      report_.notes.push_back(fmt::format("corrected {} biases", count));
      select();
      choose();
    }
    quantized_ = quantized();
    measure();
  }

  void write(const std::string& output) {
    report_.output = output;
    const bool dynamic = o_.select.mode == QuantizeMode::Dynamic;
    const QuantizedFormat format = o_.format.value_or(dynamic ? QuantizedFormat::QLinear : QuantizedFormat::Qdq);
    progress_("writing " + output, 0, 0);
    if (format == QuantizedFormat::QLinear) {
      const FormReport form = to_integer_operators(quantized_);
      for (const std::string& s : form.stays) report_.notes.push_back(s);
    }
    if (format == QuantizedFormat::Ir) {
      prepare_graph(quantized_, {});
      save_ir(quantized_, output);
    } else {
      write_onnx(quantized_, output, {opsets_, o_.external_data, o_.opset});
      std::error_code error;
      report_.bytes_after = static_cast<int64_t>(fs::file_size(output, error));
      if (fs::exists(output + ".data", error))
        report_.bytes_after += static_cast<int64_t>(fs::file_size(output + ".data", error));
    }
  }

  QuantizeReport& report() { return report_; }

 private:
  void select() { selection_ = select_nodes(graph_, options()); }
  SelectOptions options() const {
    SelectOptions s = o_.select;
    s.exclude_nodes.insert(s.exclude_nodes.end(), kept_.begin(), kept_.end());
    return s;
  }

  // Statistics are kept by name: what was seen once is not run again.
  void choose() {
    if (o_.select.mode == QuantizeMode::Static) {
      std::vector<std::string> missing;
      for (const std::string& name : activations(graph_, selection_))
        if (!seen_.contains(name)) missing.push_back(name);
      if (!missing.empty()) seen_.merge(calibrate(graph_, missing, samples_, progress_));
    }
    facts_ = choose_facts(graph_, selection_, seen_, o_);
  }

  Graph quantized() const {
    Graph g = deep_copy(graph_);
    quantize(g, facts_);
    return g;
  }

  std::vector<std::string> output_names() const {
    std::vector<std::string> names;
    names.reserve(graph_.outputs.size());
    for (TensorId t : graph_.outputs) names.push_back(graph_.tensor(t).name);
    return names;
  }

  double worst_output(const Graph& g) const {
    double worst = INFINITY;
    for (const SignalToNoise& s :
         compare(original_, output_names(), g, output_names(), samples_, kCompared, progress_, "comparing outputs"))
      if (!s.empty()) worst = std::min(worst, s.db());
    return worst;
  }

  std::vector<double> own_ratios() const {
    const Twins twins = make_twins(graph_, selection_, facts_);
    std::vector<SignalToNoise> ratios(twins.nodes.size());
    each_pair(twins, samples_, kCompared, progress_, "comparing layers",
              [&](size_t i, const Constant& exact, const Constant& rounded) { ratios[i].add(exact, rounded); });
    std::vector<double> out(selection_.nodes.size(), NAN);
    for (size_t i = 0; i < ratios.size(); i++)
      if (!ratios[i].empty()) out[twins.nodes[i]] = ratios[i].db();
    return out;
  }

  // The fewest of the noisiest layers stay in fp32 for which the outputs are as exact as wanted: by halving.
  void mix_precision(double wanted) {
    const std::vector<double> own = own_ratios();
    std::vector<size_t> order;
    for (size_t i = 0; i < own.size(); i++)
      if (!std::isnan(own[i])) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return own[a] < own[b]; });
    std::vector<std::string> names;
    names.reserve(order.size());
    for (size_t i : order) names.push_back(selection_.nodes[i].name);
    auto reaches = [&](size_t kept) {
      kept_.assign(names.begin(), names.begin() + static_cast<long>(kept));
      select();
      if (selection_.nodes.empty()) return true;
      choose();
      return worst_output(quantized()) >= wanted;
    };
    size_t low = 0, high = names.size();  // `high` reaches it: everything in fp32
    while (low < high) {
      const size_t middle = (low + high) / 2;
      if (reaches(middle))
        high = middle;
      else
        low = middle + 1;
    }
    reaches(high);
    if (selection_.nodes.empty())
      throw Error(ErrorKind::InvalidInput, fmt::format("outputs of {} dB leave nothing to quantize", wanted),
                  "ask for less, or give more typical calibration data");
    for (const std::string& name : kept_) mixed_.insert(name);
    report_.notes.push_back(fmt::format("{} of {} layers stay in fp32 for {} dB", high, names.size(), wanted));
  }

  void measure() {
    std::vector<double> snr(selection_.nodes.size(), NAN), own = snr;
    if (samples_.count > 0) {
      own = own_ratios();
      std::vector<std::string> names = output_names();
      const size_t outputs = names.size();
      std::vector<size_t> layers;
      std::set<std::string> kept;
      for (const Tensor& t : original_.tensors) kept.insert(t.name);
      for (size_t i = 0; i < selection_.nodes.size(); i++) {
        const std::string& result = graph_.tensor(selection_.nodes[i].result).name;
        if (!kept.contains(result) || quantized_.find_tensor(result) == kNoTensor) continue;
        layers.push_back(i);
        names.push_back(result);
      }
      const auto ratios =
          compare(original_, names, quantized_, names, samples_, kCompared, progress_, "comparing outputs");
      for (size_t i = 0; i < outputs; i++)
        if (!ratios[i].empty()) report_.outputs[names[i]] = ratios[i].db();
      for (size_t i = 0; i < layers.size(); i++)
        if (!ratios[outputs + i].empty()) snr[layers[i]] = ratios[outputs + i].db();
    }
    auto known = [](double v) { return std::isnan(v) ? std::nullopt : std::optional(v); };
    for (size_t i = 0; i < selection_.nodes.size(); i++) {
      const SelectedNode& s = selection_.nodes[i];
      report_.quantized.push_back({s.name, s.op, known(snr[i]), known(own[i])});
      report_.quantized_ops[s.op]++;
    }
    report_.skipped = selection_.skipped;
    for (SkippedNode& s : report_.skipped)
      if (mixed_.contains(s.name)) s.reason = "kept in fp32: too noisy";
  }

  const QuantizeOptions& o_;
  const Samples& samples_;
  const ProgressFn& progress_;
  std::map<std::string, int64_t> opsets_;
  Graph original_, graph_, quantized_;  // as loaded; refined; in QDQ
  Selection selection_;
  Statistics seen_;
  QuantizationFacts facts_;
  std::vector<std::string> kept_;  // layers that mixed precision leaves in fp32
  std::set<std::string> mixed_;
  QuantizeReport report_;
};

// Found out before the work, not after it.
void require_writable(const std::string& output, const QuantizeOptions& o) {
  if (output.empty()) throw Error(ErrorKind::InvalidInput, "no file to write to", "-o int8.onnx");
  const bool ir = o.format == QuantizedFormat::Ir;
  if (!ir && fs::is_directory(output)) throw Error(ErrorKind::Io, output + ": is a folder", "-o int8.onnx");
  AtomicFile probe(ir ? output + ".probe" : output);
}

}  // namespace

QuantizeReport quantize_model(const std::string& path, const std::string& output, const QuantizeOptions& options,
                              const Samples& samples, const ProgressFn& progress) {
  require_writable(output, options);
  ModelQuantizer q(path, options, samples, progress);
  q.run();
  q.write(output);
  return std::move(q.report());
}

}  // namespace ingot
