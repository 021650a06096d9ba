// Memory of results. What is given back is kept for later results, up to a limit: pages fresh from the system cost more
// than filling them does, and a model that writes a text returns the same large tensors for every word.
#pragma once
#include <cstddef>

namespace ingot {

// At a multiple of 64 bytes, with room for a whole vector at the end; never null. Throws std::bad_alloc.
void* take_output(size_t bytes);
void give_back_output(void* memory) noexcept;  // null: nothing

}  // namespace ingot
