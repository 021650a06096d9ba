#include "extractors/extract.h"

namespace ingot {

void extract(Graph&, const std::map<std::string, int64_t>&) {}

}  // namespace ingot
