// What a person sees on stderr: notes, errors, progress. stdout is for data only.
#pragma once
#include <chrono>
#include <string>

#include "base/error.h"

namespace ingot {

// 0 ok, 1 internal error, 2 wrong usage, then one per kind of error. Documented in `ingot --help`.
int exit_code(ErrorKind);

// Colours only on a terminal, and not when NO_COLOR is set.
std::string bold(const std::string&, int fd);
std::string dim(const std::string&, int fd);

void print_note(const std::string& message);
void print_error(const std::string& message, const std::string& hint);

// Has everything printed so far arrived? An Io error if not: a full disk must not look like success.
void finish_output();

// "compiling model.onnx ..." while it lives, on a terminal only; the line is erased when it is done.
class Progress {
 public:
  explicit Progress(const std::string& what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void update(const std::string& what);

 private:
  bool visible_;
};

// "calibrating  [#####.....]  3/10"
std::string progress_bar(const std::string& what, size_t done, size_t of);

double seconds_now();              // wall clock, monotonic
double cpu_seconds_now();          // of the whole process
std::string human_bytes(int64_t);  // "90.4 MB"

}  // namespace ingot
