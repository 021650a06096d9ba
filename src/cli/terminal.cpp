#include "cli/terminal.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iostream>

namespace ingot {
namespace {

bool colourful(int fd) {
  const char* no_color = std::getenv("NO_COLOR");
  return (!no_color || !*no_color) && isatty(fd);
}
std::string wrap(const std::string& text, int fd, const char* code) {
  return colourful(fd) ? fmt::format("\033[{}m{}\033[0m", code, text) : text;
}
// Names in a model are hostile too: control characters and bytes that are no UTF-8 are shown, not sent to a terminal.
std::string printable(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    const size_t length = c < 0x80 ? 1 : c >= 0xf0 && c < 0xf5 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 0;
    bool good =
        length > 0 && c < 0xf5 && i + length <= text.size() && (c >= 0x20 || c == '\n' || c == '\t') && c != 0x7f;
    for (size_t k = 1; good && k < length; k++) good = (static_cast<unsigned char>(text[i + k]) & 0xc0) == 0x80;
    out += good ? text.substr(i, length) : fmt::format("\\x{:02x}", c);
    i += good ? length : 1;
  }
  return out;
}
double clock_seconds(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::InvalidModel:
      return 3;
    case ErrorKind::Unsupported:
      return 4;
    case ErrorKind::InvalidInput:
      return 5;
    case ErrorKind::Io:
      return 6;
    case ErrorKind::Resource:
      return 7;
    case ErrorKind::Deadline:
      return 8;
    case ErrorKind::Cancelled:
      return 9;
    case ErrorKind::Internal:
      break;
  }
  return 1;
}

std::string bold(const std::string& text, int fd) { return wrap(text, fd, "1"); }
std::string dim(const std::string& text, int fd) { return wrap(text, fd, "2"); }

void print_note(const std::string& message) { fmt::print(stderr, "{}\n", dim(printable(message), STDERR_FILENO)); }

void print_error(const std::string& message, const std::string& hint) {
  fmt::print(stderr, "{} {}\n", wrap("error:", STDERR_FILENO, "1;31"), printable(message));
  fmt::print(stderr, "{} {}\n", wrap("hint:", STDERR_FILENO, "1;36"), printable(hint));
}

void finish_output() {
  std::cout.flush();
  const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) || !std::cout;
  // A reader that has seen enough (`| head`) has closed the pipe.
  if (lost && errno != EPIPE) fail(ErrorKind::Io, "standard output cannot be written: {}", std::strerror(errno));
}

Progress::Progress(const std::string& what) : visible_(isatty(STDERR_FILENO)) { update(what); }

Progress::~Progress() {
  if (visible_) fmt::print(stderr, "\r\033[K");
}

void Progress::update(const std::string& what) {
  if (!visible_) return;
  fmt::print(stderr, "\r\033[K{}", dim(what, STDERR_FILENO));
  std::fflush(stderr);
}

std::string progress_bar(const std::string& what, size_t done, size_t of) {
  constexpr size_t kWidth = 30;
  const size_t full = of ? std::min(done, of) * kWidth / of : 0;
  return fmt::format("{}  [{}{}]  {}/{}", what, std::string(full, '#'), std::string(kWidth - full, '.'), done, of);
}

double seconds_now() { return clock_seconds(CLOCK_MONOTONIC); }
double cpu_seconds_now() { return clock_seconds(CLOCK_PROCESS_CPUTIME_ID); }

std::string human_bytes(int64_t bytes) {
  const char* units[] = {"B", "KB", "MB", "GB", "TB"};
  double n = static_cast<double>(bytes);
  size_t unit = 0;
  while (n >= 1000 && unit < 4) n /= 1000, unit++;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", n, units[unit]);
}

}  // namespace ingot
