#include "base/stop.h"

#include <chrono>

namespace ingot {
namespace {

constexpr double kLongest = 1e9;                       // seconds
constexpr uint64_t kBetweenPolls = uint64_t{1} << 28;  // ticks: about a tenth of a second

}  // namespace

thread_local constinit Stop* stop_in_force = nullptr;

int64_t Stop::now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Stop::after(double seconds) {
  if (!(seconds >= 0)) invalid_input("{}: {} is not a number of seconds", option_, seconds);
  seconds_ = seconds;
  deadline_ = seconds == 0 || seconds > kLongest ? 0 : now() + static_cast<int64_t>(seconds * 1e9);
}

double Stop::seconds_left() const { return static_cast<double>(deadline_ - now()) * 1e-9; }

void Stop::when(Poll poll, void* data) {
  poll_ = poll;
  poll_data_ = data;
  poll_at_ = ticks() + kBetweenPolls;
}

void Stop::ask_host() {
  poll_at_ = ticks() + kBetweenPolls;
  if (poll_(poll_data_) != 0) said_so_ = true;
}

void Stop::throw_cancelled() const { throw Error(ErrorKind::Cancelled, std::string(what_) + " was cancelled"); }

void Stop::throw_late() const {
  throw Error(ErrorKind::Deadline, fmt::format("{} was not done in {} s", what_, seconds_),
              fmt::format("{} allows more", option_));
}

}  // namespace ingot
