// The commands of `ingot`, one file each. Each adds itself to the application; its callback does the work.
#pragma once
#include <CLI/CLI.hpp>

#include "cli/model.h"

namespace ingot {

void add_compile(CLI::App&);
void add_run(CLI::App&);
void add_bench(CLI::App&);
void add_inspect(CLI::App&);
void add_quantize(CLI::App&);
void add_convert(CLI::App&);
void add_export(CLI::App&);
void add_cache(CLI::App&);
void add_version(CLI::App&);

// The page of `ingot inspect --html`: one file, nothing loaded from elsewhere. arena: bytes, 0 when not known.
std::string inspect_html(const Model&, const std::string& path, int64_t arena);

}  // namespace ingot
