// A graph at run time: planned regions and host nodes, one after the other, with the values that pass between them.
//
// The body of a loop runs many times with the same shapes. What a run of it needs lies in a frame that the loop keeps
// from turn to turn: the list of values, the plan of each region, and the results of regions, whose memory serves again
// once nobody else holds them. A turn then allocates nothing and looks up no plan.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ops/host_tensors.h"
#include "planner/cut.h"
#include "runtime/region.h"

namespace ingot {

class Flow {
 public:
  Flow(const std::shared_ptr<const Graph>&, const RegionOptions&);

  // The graph's only part, if that is a region: it can be run without making values.
  Region* whole() const;
  // Strings are the pool's numbers.
  std::vector<Value> run(std::vector<Value> inputs, StringPool&);
  void prepare();  // as Session::prepare
  int64_t arena_bytes() const;

 private:
  // `captured`: the last so many inputs of a body are captured values.
  Flow(const std::shared_ptr<const Graph>&, const RegionOptions&, bool is_body, size_t captured);

  struct RunPart {
    std::unique_ptr<Region> region;  // null for a host node
    size_t node = 0;
    std::vector<TensorId> inputs, outputs;
    std::map<std::string, std::unique_ptr<Flow>> bodies;  // of a host node, by attribute
    std::vector<TensorId> done;                           // read here for the last time
  };

  struct Frame;
  // What a frame keeps for a part: of a region its plan and the memory of its outputs; of a host node its bodies.
  struct PartFrame {
    std::vector<TensorView> views;
    Region::MemoPtr memo;
    std::vector<Recycled> given;
    std::map<std::string, Frame> bodies;
  };
  struct Frame {
    bool repeated = false;  // it runs many times: its memory is worth keeping
    std::vector<Value> values;
    std::vector<PartFrame> parts;
  };

  Frame new_frame(bool repeated) const;
  std::vector<Value> run(Frame&, std::vector<Value> formal, StringPool&);
  void run_region(const RunPart&, Frame&, PartFrame&);
  void run_host(const RunPart&, Frame&, PartFrame&, StringPool&);
  void find_last_reads();

  std::shared_ptr<const Graph> graph_;
  size_t captured_ = 0;
  std::vector<RunPart> parts_;
  std::vector<TensorId> constants_;  // that a host node reads or the graph returns
};

}  // namespace ingot
