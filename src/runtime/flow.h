// A graph at run time: planned regions and host nodes, one after the other, with the values that pass between them.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "planner/cut.h"
#include "runtime/region.h"

namespace ingot {

class Flow {
 public:
  Flow(const std::shared_ptr<const Graph>&, const RegionOptions&);

  // The graph's only part, if that is a region: it can be run without making values.
  Region* whole() const { return parts_.size() == 1 ? parts_[0].region.get() : nullptr; }
  // Strings are the pool's numbers.
  std::vector<Value> run(std::vector<Value> inputs, StringPool&);
  void prepare();  // as Session::prepare
  int64_t arena_bytes() const;

 private:
  struct RunPart {
    std::unique_ptr<Region> region;  // null for a host node
    size_t node = 0;
    std::vector<TensorId> inputs, outputs;
    std::map<std::string, std::unique_ptr<Flow>> bodies;  // of a host node, by attribute
    std::vector<TensorId> done;                           // read here for the last time
  };

  void run_region(const RunPart&, std::vector<Value>& values);
  void run_host(const RunPart&, std::vector<Value>& values, StringPool&);
  void find_last_reads();

  std::shared_ptr<const Graph> graph_;
  std::vector<RunPart> parts_;
  std::vector<TensorId> constants_;  // that a host node reads or the graph returns
};

}  // namespace ingot
