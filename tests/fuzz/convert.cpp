#include <filesystem>

#include "loader/onnx_loader.h"
#include "model_file.h"
#include "quantizer/convert.h"
#include "quantizer/quantizer.h"
#include "run_graph.h"
#include "targets.h"

namespace ingot {
namespace {

constexpr int64_t kOldestOpset = 11;
constexpr const char* kForms[] = {"", "qdq", "qlinear", "float", "fp16", "bf16"};
constexpr RangeMethod kMethods[] = {RangeMethod::MinMax, RangeMethod::Percentile, RangeMethod::Entropy,
                                    RangeMethod::Mse};

void convert_as(const std::string& model, const std::string& output, uint8_t how, int64_t opset) {
  ConvertOptions options;
  options.to = kForms[how % std::size(kForms)];
  options.opset = opset;
  if (how & 16) options.bias = BiasRecipe::Fp32;
  if (how & 32) options.weight = DType::U8;
  options.keep_io = !(how & 64);
  convert_model(model, output, options);
}

void quantize_as(const std::string& model, const std::string& output, uint8_t how, int64_t opset) {
  QuantizeOptions options;
  options.select.mode = static_cast<QuantizeMode>(how % 3);
  if (options.select.mode == QuantizeMode::WeightOnly) options.weight = how & 4 ? DType::I4 : DType::I8;
  options.method = kMethods[how / 4 % std::size(kMethods)];
  options.bias_correction = how & 16;
  options.per_channel = how & 32;
  if (how & 64) options.smooth_alpha = 0.5;
  options.opset = opset;
  const auto inputs = sample_inputs(*load_model(model, {}));
  Samples samples;
  if (inputs) samples = {2, [&](size_t) { return *inputs; }};
  quantize_model(model, output, options, samples, [](const std::string&, size_t, size_t) {});
}

}  // namespace

void fuzz::convert(Bytes bytes) {
  if (bytes.size() < 2) return;
  static const std::string output =
      std::filesystem::temp_directory_path() / ("ingot-fuzz-" + std::to_string(getpid()) + ".onnx");
  const struct Removed {
    ~Removed() { unlink(output.c_str()); }
  } removed;
  const ModelFile file(bytes.subspan(2));
  const int64_t opset = kOldestOpset + bytes[1] % (kNewestOpset - kOldestOpset + 1);
  (bytes[0] & 128 ? quantize_as : convert_as)(file.path(), output, bytes[0], opset);
  try {
    load_model(output, {});
  } catch (const Error& e) {
    fprintf(stderr, "ERROR: what was written cannot be read: %s\n", e.what());
    abort();
  }
}

}  // namespace ingot
