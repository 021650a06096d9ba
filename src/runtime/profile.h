// A Chrome trace of the steps a session runs: one event per step with the ONNX nodes it came from.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "planner/plan.h"

namespace ingot {

class Profile {
 public:
  explicit Profile(std::string path) : path_(std::move(path)) {}
  ~Profile();  // writes the file; a profile that cannot be written is reported on stderr, never thrown

  static int64_t now();  // nanoseconds, monotonic
  // infos: of all tensors, as planned.
  void add(const Graph&, const std::vector<TensorInfo>& infos, const PlannedStep&, bool specialised, int64_t start,
           int64_t end);

 private:
  std::string path_;
  std::mutex mutex_;
  std::vector<std::string> events_;
};

}  // namespace ingot
