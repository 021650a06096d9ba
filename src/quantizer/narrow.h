// Models of f32 -> 16-bit floats: the counterpart of quantizer/widen.h.
#pragma once
#include <string>
#include <vector>

#include "graph/graph.h"
#include "quantizer/select.h"

namespace ingot {

struct NarrowOptions {
  DType to = DType::F16;  // or BF16
  int64_t opset = 0;      // what is not allowed there stays f32
  bool keep_io = true;    // inputs and outputs stay f32, with Casts behind and before them
};

struct NarrowReport {
  int64_t changed = 0;             // nodes that compute in the narrow type
  std::vector<SkippedNode> stays;  // f32, and why
  std::vector<std::string> notes;  // constants that do not fit
};

// In place. Precondition: types are known. Graphs in attributes stay as they are.
NarrowReport narrow(Graph&, const NarrowOptions&);

}  // namespace ingot
