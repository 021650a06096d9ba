// What a quantized model does in which form, as data.
#pragma once
#include <string>
#include <vector>

#include "quantizer/forms.h"
#include "quantizer/select.h"

namespace ingot {

struct QuantizedNode {
  std::string name, op;
  std::string
      form;  // "QLinearConv", "MatMulInteger", ...; "QDQ"; "dynamic QDQ"; "integer": moves integers; "weight-only"
  std::string reason;  // why it has no integer operator, where it could
};

struct ConvertReport {
  std::string model, output;
  std::vector<QuantizedNode> quantized;
  std::vector<SkippedNode> unquantized;  // MatMul, Conv and so on that compute in fp32
  std::vector<std::string> notes;
  FormReport form;
};

// Fills in `quantized` and `unquantized`. `marked`: the graph in QDQ; `written`: the same in its final form, with the
// reasons of `report.form` where they differ.
void describe(const Graph& marked, const Graph& written, ConvertReport& report);

std::string report_text(const ConvertReport&);
std::string report_json(const ConvertReport&);

}  // namespace ingot
