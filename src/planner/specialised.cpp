#include "planner/specialised.h"

#include <charconv>
#include <cstring>
#include <sstream>

#include "base/error.h"

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

std::string write_targets(const std::vector<TargetKernels>& targets) {
  std::string out;
  for (const TargetKernels& t : targets)
    out += fmt::format("target {} {}\n{}", t.target->name, t.kernels.size(), write_kernels(t.kernels));
  return out;
}

TargetKernels choose_target(const std::string& text, const KernelFn* functions) {
  std::istringstream lines(text);
  TargetKernels best{nullptr, {}};
  std::string names;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string word, name;
    size_t count = 0;
    fields >> word >> name >> count;
    std::string kernels;
    for (size_t i = 0; i < count && std::getline(lines, line); i++) kernels += line + "\n";
    const Target* target = target_named(name);
    names += (names.empty() ? "" : ", ") + name;
    if (target && runs_here(*target) && (!best.target || target > best.target))
      best = {target, read_kernels(kernels, functions)};
    functions += count;
  }
  if (!best.target)
    throw Error(ErrorKind::Unsupported,
                fmt::format("this library was compiled for {}, which this CPU does not run", names),
                fmt::format("compile it with --march {}, or with several targets{}", cpu_target().name,
                            std::getenv("INGOT_ISA") ? "; INGOT_ISA is set" : ""));
  return best;
}

}  // namespace ingot
