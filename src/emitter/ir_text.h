// Names, strings and numbers as the IR's yaml spells them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/dim.h"
#include "graph/graph.h"

namespace ingot {

std::string name_text(std::string_view);    // plain where every yaml reader takes it for a string, else quoted
std::string string_text(std::string_view);  // always quoted; {bytes: "hex"} when not UTF-8
std::string float_text(double value);       // shortest that reads back to the same float or double
std::string float_text(float value);
std::string dim_text(const Dim&);
std::string names_text(const std::vector<std::string>&);  // [a, b]

// The elements in brackets when the constant is small and reads back exactly; else nothing.
std::string inline_text(const Constant&);

}  // namespace ingot
