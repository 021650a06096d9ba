// Post-training quantization of an ONNX file, from options to the file that is written.
//
//   load -> fold -> select nodes -> calibrate -> facts -> quantize (QDQ) -> integer operators if asked -> write
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "quantizer/calibrate.h"
#include "quantizer/facts.h"
#include "quantizer/select.h"

namespace ingot {

enum class QuantizedFormat { Qdq, QLinear, Ir };

struct QuantizeOptions {
  SelectOptions select;
  std::optional<QuantizedFormat> format;  // default: Qdq; of dynamic quantization: QLinear
  bool per_channel = true;
  bool symmetric = false;  // activations
  bool reduce_range = false;
  DType activation = DType::U8, weight = DType::I8;
  RangeMethod method = RangeMethod::MinMax;
  double percentile = 99.99;
  bool bias_correction = false;
  bool smooth_quant = true;  // where it promises much less noise; or, with an alpha, everywhere
  std::optional<double> smooth_alpha;
  std::optional<double> mixed_precision;  // wanted SNR of the outputs, in dB
  int64_t block = 0;                      // WeightOnly
  bool external_data = false;
  std::optional<int64_t> opset;  // to write; absent: that of the model, at least 21
};

struct QuantizeReport {
  struct Layer {
    std::string name, op;
    std::optional<double> snr, own_snr;  // dB: in the quantized model; alone, with exact operands
  };
  std::string model, output;
  std::vector<Layer> quantized;
  std::vector<SkippedNode> skipped;
  std::map<std::string, double> outputs;  // SNR in dB
  std::map<std::string, int64_t> quantized_ops;
  std::vector<std::string> notes;
  int64_t bytes_before = 0, bytes_after = 0;
};

// Quantizes `path` and writes `output`: an .onnx file, or an IR folder. Nothing is written when it fails. `samples` may
// be empty unless the mode is Static; they must fit the model's inputs.
QuantizeReport quantize_model(const std::string& path, const std::string& output, const QuantizeOptions&,
                              const Samples&, const ProgressFn&);

std::string report_text(const QuantizeReport&);
std::string report_json(const QuantizeReport&);

}  // namespace ingot
