// The value of a Constant node, in all its spellings.
#pragma once
#include "graph/graph.h"

namespace ingot {

ConstantPtr constant_value(const std::map<std::string, Attribute>& attrs);

}  // namespace ingot
