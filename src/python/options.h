// Options as they come from Python.
#pragma once
#include <nanobind/nanobind.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/compiler.h"

namespace ingot::python {

// Checks ranges. threads 0 takes what the process may use; shapes fixes those of inputs (-1 leaves a dim free); wait
// has runs wait for their specialised kernels; limits are those of base/limits.h.
std::pair<CompileOptions, SessionOptions> read_options(std::map<std::string, bool> patterns, int opt_level,
                                                       const std::string& march, int threads,
                                                       std::map<std::string, std::vector<int64_t>> shapes, bool wait,
                                                       const std::map<std::string, double>& limits = {});

// A str or os.PathLike.
std::string file_path(nanobind::handle path);

}  // namespace ingot::python
