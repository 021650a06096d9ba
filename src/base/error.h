// The one error type: what failed, where, what was expected and found, and what to do about it.
// Thrown inside C++; turned into a status and a text at the C ABI and into typed exceptions in Python.
#pragma once
#include <fmt/format.h>

#include <exception>
#include <string>

namespace ingot {

enum class ErrorKind {
  InvalidModel = 1,  // a model file, IR or graph that breaks its own rules
  Unsupported = 2,   // a valid request that Ingot does not serve
  InvalidInput = 3,  // tensors, shapes or options given by the caller
  Io = 4,            // a file that cannot be read or written
  Internal = 5,      // a broken promise of ours
  Resource = 6,      // memory or threads that the system does not give, or a limit does not allow
  Cancelled = 7,     // ended by the host
  Deadline = 8,      // not done in the time the host gave
};

class Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string message, std::string hint = {});

  ErrorKind kind() const { return kind_; }
  const std::string& message() const { return message_; }
  const std::string& hint() const { return hint_; }
  const char* what() const noexcept override { return text_.c_str(); }

  // The same error, said of a place: "place: message".
  Error at(const std::string& place) const { return Error(kind_, place + ": " + message_, hint_); }

 private:
  ErrorKind kind_;
  std::string message_, hint_, text_;
};

// What std::bad_alloc means to a user.
Error out_of_memory();

template <class... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
[[noreturn]] void invalid_model(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::InvalidModel, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
[[noreturn]] void unsupported(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::Unsupported, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
[[noreturn]] void invalid_input(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::InvalidInput, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace ingot
