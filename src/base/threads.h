// Work shared out to threads that live only as long as it takes.
#pragma once
#include <cstddef>
#include <functional>

namespace ingot {

// work(0), ... work(count - 1), by the caller and up to `threads` - 1 more. Threads that the system does not give are
// done without. The first exception ends the sharing out and is thrown here, when no other thread is left; so does the
// caller's Stop (base/stop.h).
void share_out(size_t count, size_t threads, const std::function<void(size_t)>& work);

}  // namespace ingot
