#include "base/threads.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "base/stop.h"

namespace ingot {

void share_out(size_t count, size_t threads, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next{0};
  std::exception_ptr failure;
  std::mutex mutex;
  const Stop* stop = stop_in_force;
  auto take = [&] {
    for (size_t i; (i = next.fetch_add(1)) < count;) try {
        if (stop) stop->look();
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next = count;
      }
  };
  std::vector<std::jthread> helpers;
  try {
    for (size_t t = 1; t < threads && t < count; t++) helpers.emplace_back(take);
  } catch (const std::system_error&) {  // no more threads
  } catch (const std::bad_alloc&) {
  }
  take();
  helpers.clear();  // joins
  if (failure) std::rethrow_exception(failure);
}

}  // namespace ingot
