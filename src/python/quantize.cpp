#include "python/quantize.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"
#include "cli/calibration.h"
#include "loader/onnx_loader.h"
#include "python/arrays.h"
#include "quantizer/convert.h"
#include "quantizer/quantizer.h"

namespace ingot::python {
namespace {

template <class T>
T one_of(const std::string& what, const std::string& given, std::initializer_list<std::pair<const char*, T>> choices) {
  std::string known;
  for (const auto& [name, value] : choices) {
    if (given == name) return value;
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  throw Error(ErrorKind::InvalidInput, fmt::format("{} is '{}'", what, given), "it is one of " + known);
}

// What the package passes on: plain values, checked here.
struct Options {
  QuantizeOptions q;

  explicit Options(const nb::dict& given) {
    for (auto [key, value] : given) set(nb::cast<std::string>(key), value);
  }

  void set(const std::string& key, nb::handle value) {
    using Strings = std::vector<std::string>;
    if (key == "mode")
      q.select.mode = one_of<QuantizeMode>("mode", nb::cast<std::string>(value),
                                           {{"static", QuantizeMode::Static},
                                            {"dynamic", QuantizeMode::Dynamic},
                                            {"weight_only", QuantizeMode::WeightOnly}});
    else if (key == "format")
      q.format = one_of<QuantizedFormat>(
          "format", nb::cast<std::string>(value),
          {{"qdq", QuantizedFormat::Qdq}, {"qlinear", QuantizedFormat::QLinear}, {"ir", QuantizedFormat::Ir}});
    else if (key == "activation")
      q.activation = one_of<DType>("activation", nb::cast<std::string>(value), {{"u8", DType::U8}, {"s8", DType::I8}});
    else if (key == "weight")
      q.weight = one_of<DType>("weight", nb::cast<std::string>(value),
                               {{"u8", DType::U8}, {"s8", DType::I8}, {"s4", DType::I4}});
    else if (key == "method")
      q.method = one_of<RangeMethod>("method", nb::cast<std::string>(value),
                                     {{"minmax", RangeMethod::MinMax},
                                      {"percentile", RangeMethod::Percentile},
                                      {"entropy", RangeMethod::Entropy},
                                      {"mse", RangeMethod::Mse}});
    else if (key == "bias")
      q.select.bias = one_of<BiasRecipe>(
          "bias", nb::cast<std::string>(value),
          {{"int32", BiasRecipe::Int32}, {"fp32", BiasRecipe::Fp32}, {"fp32_trailing", BiasRecipe::Fp32Trailing}});
    else if (key == "smooth_quant")
      q.smooth_quant = nb::cast<bool>(value);
    else if (key == "smooth_alpha")
      q.smooth_alpha = nb::cast<double>(value);
    else if (key == "mixed_precision")
      q.mixed_precision = nb::cast<double>(value);
    else if (key == "percentile")
      q.percentile = nb::cast<double>(value);
    else if (key == "per_channel")
      q.per_channel = nb::cast<bool>(value);
    else if (key == "symmetric")
      q.symmetric = nb::cast<bool>(value);
    else if (key == "reduce_range")
      q.reduce_range = nb::cast<bool>(value);
    else if (key == "bias_correction")
      q.bias_correction = nb::cast<bool>(value);
    else if (key == "external_data")
      q.external_data = nb::cast<bool>(value);
    else if (key == "opset")
      q.opset = nb::cast<int64_t>(value);
    else if (key == "block")
      q.block = nb::cast<int64_t>(value);
    else if (key == "op_types")
      q.select.op_types = nb::cast<Strings>(value);
    else if (key == "exclude_op_types")
      q.select.exclude_op_types = nb::cast<Strings>(value);
    else if (key == "nodes")
      q.select.nodes = nb::cast<Strings>(value);
    else if (key == "exclude_nodes")
      q.select.exclude_nodes = nb::cast<Strings>(value);
    else
      invalid_input("there is no option '{}'", key);
  }
};

// Samples of the caller, by name: their memory is used while the list lives.
Samples from_list(const nb::list& given, const std::vector<Port>& inputs, std::vector<nb::object>& keep) {
  auto all = std::make_shared<std::vector<std::vector<Value>>>();
  for (nb::handle item : given) {
    const nb::dict sample = nb::cast<nb::dict>(item);
    std::vector<Value> values;
    for (const Port& port : inputs) {
      if (!sample.contains(port.name.c_str()))
        invalid_input("calibration sample {} has no input '{}'", all->size(), port.name);
      TensorInfo type;
      type.dtype = port.dtype;
      type.form = port.form;
      values.push_back(read_value(sample[port.name.c_str()], port.name, type, keep));
    }
    all->push_back(std::move(values));
  }
  return {all->size(), [all](size_t i) { return all->at(i); }};
}

// Returns the report, as text and as JSON.
nb::tuple quantize_file(const std::string& path, const std::string& output, nb::handle calib, const nb::dict& given) {
  const Options options(given);
  std::vector<nb::object> keep;
  Samples samples;
  if (!calib.is_none()) {
    const std::vector<Port> inputs = input_ports(*load_onnx(path));
    samples = nb::isinstance<nb::str>(calib) ? read_samples(nb::cast<std::string>(calib), inputs)
                                             : from_list(nb::cast<nb::list>(calib), inputs, keep);
  }
  QuantizeReport report;
  {
    nb::gil_scoped_release unlocked;
    report = quantize_model(path, output, options.q, samples, [](const std::string&, size_t, size_t) {});
  }
  return nb::make_tuple(report_text(report), report_json(report));
}

ConvertOptions convert_options(const nb::dict& given) {
  ConvertOptions o;
  for (auto [k, value] : given) {
    const auto key = nb::cast<std::string>(k);
    if (key == "to")
      o.to = nb::cast<std::string>(value);
    else if (key == "opset")
      o.opset = nb::cast<int64_t>(value);
    else if (key == "bias")
      o.bias = one_of<BiasRecipe>(
          "bias", nb::cast<std::string>(value),
          {{"int32", BiasRecipe::Int32}, {"fp32", BiasRecipe::Fp32}, {"fp32_trailing", BiasRecipe::Fp32Trailing}});
    else if (key == "weight")
      o.weight = one_of<DType>("weight", nb::cast<std::string>(value), {{"u8", DType::U8}, {"s8", DType::I8}});
    else if (key == "external_data")
      o.external_data = nb::cast<bool>(value);
    else if (key == "keep_io")
      o.keep_io = nb::cast<bool>(value);
    else if (key == "facts")
      o.facts = nb::cast<std::string>(value);
    else
      invalid_input("there is no option '{}'", key);
  }
  return o;
}

// What stays as it was and why; the report as text and as JSON.
nb::tuple convert_file(const std::string& path, const std::string& output, const nb::dict& given) {
  const ConvertOptions options = convert_options(given);
  ConvertReport report;
  {
    nb::gil_scoped_release unlocked;
    report = convert_model(path, output, options);
  }
  return nb::make_tuple(report.form.stays, report_text(report), report_json(report));
}

// The report as text and as JSON.
nb::tuple quantize_facts(const std::string& path, const std::string& output, const std::string& facts,
                         const nb::dict& given) {
  const ConvertOptions options = convert_options(given);
  ConvertReport report;
  {
    nb::gil_scoped_release unlocked;
    report = quantize_with_facts(path, output, facts_from_json(facts), options);
  }
  return nb::make_tuple(report_text(report), report_json(report));
}

}  // namespace

void add_quantizer(nb::module_& m) {
  using nb::literals::operator""_a;
  m.def("quantize_file", &quantize_file, "path"_a, "output"_a, "calib"_a.none(), "options"_a,
        nb::sig("def quantize_file(path: str, output: str, calib: str | list[dict[str, typing.Any]] | None, "
                "options: dict[str, typing.Any]) -> tuple[str, str]"),
        "Quantizes an ONNX file; the report as text and as JSON.");
  m.def("quantize_facts", &quantize_facts, "path"_a, "output"_a, "facts"_a, "options"_a,
        nb::sig("def quantize_facts(path: str, output: str, facts: str, options: dict[str, typing.Any]) "
                "-> tuple[str, str]"),
        "Quantizes an ONNX file with facts given as JSON; the report as text and as JSON.");
  m.def("convert_file", &convert_file, "path"_a, "output"_a, "options"_a,
        nb::sig("def convert_file(path: str, output: str, options: dict[str, typing.Any]) "
                "-> tuple[list[str], str, str]"),
        "Writes an ONNX file in another form or opset; what stays as it was, and the report as text and as JSON.");
}

}  // namespace ingot::python
