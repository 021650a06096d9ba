#include "python/options.h"

#include <nanobind/stl/string.h>

#include "base/error.h"

namespace ingot::python {
namespace nb = nanobind;

std::pair<CompileOptions, SessionOptions> read_options(std::map<std::string, bool> patterns, int opt_level,
                                                       const std::string& march, int threads,
                                                       std::map<std::string, std::vector<int64_t>> shapes, bool wait,
                                                       const std::map<std::string, double>& limits) {
  if (opt_level < 0 || opt_level > 3) invalid_input("opt_level is 0 to 3, not {}", opt_level);
  if (threads < 0) invalid_input("threads is a count, or 0 for what the process may use, not {}", threads);
  CompileOptions options;
  options.patterns = std::move(patterns);
  options.opt_level = opt_level;
  options.march = march;
  options.shapes = std::move(shapes);
  options.wait = wait;
  SessionOptions session;
  session.threads = threads;
  for (const auto& [name, value] : limits) set_limit(options.limits, name, value);
  session.limits = options.limits;
  return {options, session};
}

std::string file_path(nb::handle path) {
  PyObject* converted = nullptr;
  if (!PyUnicode_FSConverter(path.ptr(), &converted)) throw nb::python_error();
  const nb::object bytes = nb::steal(converted);
  return {PyBytes_AS_STRING(converted), static_cast<size_t>(PyBytes_GET_SIZE(converted))};
}

}  // namespace ingot::python
