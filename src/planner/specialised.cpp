#include "planner/specialised.h"

#include <charconv>
#include <cstring>
#include <sstream>

#include "base/error.h"
#include "planner/kernel_table.h"

namespace ingot {

std::string kernel_expr(const Expr* e) {
  if (!e) return "";
  std::string out = e->str() + " :";
  for (DType t : e->input_types) out += " " + std::string(name(t));
  out += " ->";
  for (DType t : e->result_types) out += " " + std::string(name(t));
  return out;
}

std::string write_kernels(const std::vector<SpecialisedKernel>& kernels) {
  std::string out;
  for (const auto& k : kernels) {
    out += k.kernel + " " + std::to_string(k.structure) + " ";
    for (size_t i = 0; i < k.params.size(); i++)
      out += (i ? "," : "") + (k.known[i] ? std::to_string(k.params[i]) : "?");
    out += " " + k.expr + "\n";
  }
  return out;
}

std::vector<SpecialisedKernel> read_kernels(const std::string& text, const KernelFn* functions) {
  std::vector<SpecialisedKernel> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    SpecialisedKernel k;
    std::string params;
    fields >> k.kernel >> k.structure >> params;
    std::getline(fields >> std::ws, k.expr);
    std::istringstream list(params);
    for (std::string p; std::getline(list, p, ',');) {
      k.known.push_back(p != "?");
      int64_t value = 0;
      if (p != "?") std::from_chars(p.data(), p.data() + p.size(), value);
      k.params.push_back(value);
    }
    k.function = functions[out.size()];
    out.push_back(std::move(k));
  }
  return out;
}

std::vector<SpecialisedKernel> usable_kernels(const std::string& text, const KernelFn* functions) {
  const size_t eol = text.find('\n');
  const auto level = level_named(std::string_view(text).substr(0, eol).substr(std::strlen("isa ")));
  if (!level || *level > cpu_level()) return {};  // the native kernels still serve
  return read_kernels(eol == std::string::npos ? "" : text.substr(eol + 1), functions);
}

}  // namespace ingot
