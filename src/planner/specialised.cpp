#include "planner/specialised.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "base/error.h"

namespace ingot {

std::vector<bool> constant_params(const Step& s) {
  std::vector<bool> constant(s.params.size(), true);
  for (const SizeField& f : s.sizes)
    for (auto i = static_cast<size_t>(f.first); i < static_cast<size_t>(f.first + f.count); i++)
      constant[i] = s.params[i] <= f.small;
  return constant;
}

std::string kernel_key(const Step& s) {
  const std::vector<bool> constant = constant_params(s);
  size_t count = constant.size();
  while (count > 0 && !constant[count - 1]) count--;
  std::string out = s.kernel->name;
  for (size_t i = 0; i < count; i++) {
    out += i ? ',' : ' ';
    char digits[24] = "?";
    char* end = constant[i] ? std::to_chars(digits, digits + sizeof digits, s.params[i]).ptr : digits + 1;
    out.append(digits, end);
  }
  if (!s.expr) return out;
  out += " " + s.expr->str() + " :";
  for (DType t : s.expr->input_types) (out += ' ') += name(t);
  out += " ->";
  for (DType t : s.expr->result_types) (out += ' ') += name(t);
  return out;
}

KernelList::KernelList(const std::string& keys, const KernelFn* functions) {
  std::istringstream lines(keys);
  for (std::string key; std::getline(lines, key); functions++) slots_[key].function = *functions;
}

std::vector<KernelSlot*> KernelList::find(const std::vector<const Step*>& steps) {
  std::vector<KernelSlot*> out;
  for (const Step* s : steps) {
    const auto it = slots_.find(kernel_key(*s));
    out.push_back(it == slots_.end() ? nullptr : &it->second);
  }
  return out;
}

std::string write_targets(const std::vector<TargetKernels>& targets) {
  std::string out;
  for (const TargetKernels& t : targets) {
    out += fmt::format("target {} {}\n", t.target->name, t.keys.size());
    for (const std::string& key : t.keys) out += key + "\n";
  }
  return out;
}

ChosenTarget choose_target(const std::string& text, const KernelFn* functions) {
  std::istringstream lines(text);
  const Target* best = nullptr;
  const KernelFn* best_functions = nullptr;
  std::string names, best_keys;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string word, name, keys;
    size_t count = 0;
    fields >> word >> name >> count;
    for (size_t i = 0; i < count && std::getline(lines, line); i++) keys += line + "\n";
    const Target* target = target_named(name);
    names += (names.empty() ? "" : ", ") + name;
    if (target && runs_here(*target) && (!best || target > best)) {
      best = target;
      best_keys = std::move(keys);
      best_functions = functions;
    }
    functions += count;
  }
  if (!best)
    throw Error(ErrorKind::Unsupported,
                fmt::format("this library was compiled for {}, which this CPU does not run", names),
                fmt::format("compile it with --march {}, or with several targets{}", cpu_target().name,
                            std::getenv("INGOT_ISA") ? "; INGOT_ISA is set" : ""));
  return {best, std::make_shared<KernelList>(best_keys, best_functions)};
}

}  // namespace ingot
