// Memory of results. What is given back is kept for later results, up to a limit: pages fresh from the system cost more
// than filling them does, and a model that writes a text returns the same large tensors for every word.
#pragma once
#include <cstddef>

#include "graph/graph.h"

namespace ingot {

// At a multiple of 64 bytes, with room for a whole vector at the end; never null. Throws std::bad_alloc.
void* take_output(size_t bytes);
void give_back_output(void* memory) noexcept;  // null: nothing

// A tensor in such memory.
ConstantPtr make_recycled(DType dtype, const std::vector<int64_t>& dims, std::byte** data);

}  // namespace ingot
