// Rules of com.microsoft that other tables use.
#pragma once
#include "extractors/rewriter.h"

namespace ingot {

// act(Conv(x, w, b) + z)
void fused_conv(Rewriter&);

}  // namespace ingot
