#include "runtime/profile.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>

#include "base/error.h"
#include "runtime/json.h"

namespace ingot {

int64_t Profile::now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

void Profile::add(const Graph& g, const std::vector<TensorInfo>& infos, const PlannedStep& p, bool specialised,
                  int64_t start, int64_t end) {
  const Node& node = g.nodes[static_cast<size_t>(p.node)];
  std::string origins;
  for (const auto& o : node.origins) origins += (origins.empty() ? "" : ", ") + json_string(o);
  std::string shapes;
  for (TensorId t : node.outputs)
    if (t != kNoTensor) shapes += str(*infos[static_cast<size_t>(t)].shape);
  std::string event = fmt::format(
      R"({{"name": {}, "cat": {}, "ph": "X", "ts": {:.3f}, "dur": {:.3f}, "pid": {}, "tid": {}, "args": {{"onnx": [{}], "kernel": {}, "specialised": {}, "output": {}}}}})",
      json_string(node.op + " " + node.name), json_string(node.op), static_cast<double>(start) / 1e3,
      static_cast<double>(end - start) / 1e3, getpid(), syscall(SYS_gettid), origins,
      json_string(p.bound->step.kernel->name), specialised, json_string(shapes));
  std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
}

Profile::~Profile() {
  FILE* f = std::fopen(path_.c_str(), "w");
  if (!f) {
    std::fprintf(stderr, "ingot: cannot write the profile to %s\n", path_.c_str());
    return;
  }
  std::fputs("[\n", f);
  for (size_t i = 0; i < events_.size(); i++)
    std::fprintf(f, "%s%s\n", events_[i].c_str(), i + 1 < events_.size() ? "," : "");
  std::fputs("]\n", f);
  std::fclose(f);
}

}  // namespace ingot
