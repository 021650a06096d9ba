// The commands of `ingot`, one file each. Each adds itself to the application; its callback does the work.
#pragma once
#include <string>

#include "cli/command.h"
#include "cli/model.h"

namespace ingot {

void add_compile(Command&);
void add_run(Command&);
void add_bench(Command&);
void add_inspect(Command&);
void add_quantize(Command&);
void add_convert(Command&);
void add_export(Command&);
void add_cache(Command&);
void add_version(Command&);

// The page of `ingot inspect --html`: one file, nothing loaded from elsewhere. arena: bytes, 0 when not known.
std::string inspect_html(const Model&, const std::string& path, int64_t arena);

}  // namespace ingot
