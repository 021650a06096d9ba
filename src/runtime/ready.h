// A plan that can run, and the memory it runs in: one arena serves all plans, those of one run after the other.
#pragma once
#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/checked.h"
#include "base/memory.h"
#include "planner/plan.h"
#include "runtime/run_alone.h"

namespace ingot {

// A plan with what running it repeatedly needs.
struct Ready {
  explicit Ready(Plan p, int threads) : plan(std::move(p)) {
    static std::atomic<int64_t> count{0};
    id = ++count;
    scratch_stride = (plan.scratch_bytes + 127) / 64 * 64;
    scratch_total = checked_mul(scratch_stride, threads);
    for (const PlannedStep& step : plan.steps) {
      first.push_back(slots);
      for (size_t i = 0; i < step.operands.size(); i++)
        if (step.operands[i].kind == Location::kInput || step.operands[i].kind == Location::kOutput)
          external.push_back({slots + i, step.operands[i]});
      slots += step.operands.size();
    }
  }

  // Of a run's tensors, results too.
  int64_t bytes() const {
    int64_t total = checked_add(plan.arena_bytes, scratch_total);
    for (const Plan::Result& r : plan.results)
      if (r.in_input < 0) total = checked_add(total, byte_size(r.dtype, product_of(r.dims)));
    return total;
  }

  Plan plan;
  int64_t id = 0;
  int64_t scratch_stride = 0, scratch_total = 0;
  size_t slots = 0;
  std::vector<size_t> first;
  struct External {
    size_t slot;
    Location location;
  };
  std::vector<External> external;
  RunAlone run_alone;
  std::vector<TensorInfo> infos;  // of all tensors, if there is a profile
};

// Memory and operand pointers of one run at a time; kept for the next run, of this plan or another.
struct Context {
  Memory arena, scratch;
  int64_t arena_bytes = 0, scratch_bytes = 0;
  int64_t plan = 0;             // whose operands the pointers are
  std::vector<void*> pointers;  // operands of all steps, flat

  void prepare(const Ready& r) {
    const bool moved = grow(arena, arena_bytes, r.plan.arena_bytes);
    grow(scratch, scratch_bytes, r.scratch_total);
    if (plan == r.id && !moved) return;
    plan = 0;
    pointers.assign(r.slots, nullptr);
    for (size_t s = 0; s < r.plan.steps.size(); s++)
      for (size_t i = 0; i < r.plan.steps[s].operands.size(); i++) {
        const Location& l = r.plan.steps[s].operands[i];
        if (l.kind == Location::kConstant) pointers[r.first[s] + i] = const_cast<std::byte*>(l.data);
        if (l.kind == Location::kArena) pointers[r.first[s] + i] = arena.get() + l.offset;
      }
    plan = r.id;
  }

 private:
  // Some more than is needed, where it grows: tensors that grow a little each time would have it move each time.
  static bool grow(Memory& memory, int64_t& has, int64_t needed) {
    if (memory && has >= needed) return false;
    has = std::max(needed, has + has / 4);
    memory.reset();
    memory = allocate_memory(has, "intermediate tensors");
    return true;
  }
};

// As many contexts as there were runs at the same time.
class Contexts {
 public:
  std::unique_ptr<Context> take(const Ready& r) {
    std::unique_ptr<Context> c;
    {
      std::lock_guard lock(mutex_);
      auto found = std::find_if(free_.begin(), free_.end(), [&](const auto& f) { return f->plan == r.id; });
      if (found == free_.end() && !free_.empty()) found = free_.end() - 1;
      if (found != free_.end()) {
        c = std::move(*found);
        free_.erase(found);
      }
    }
    if (!c) c = std::make_unique<Context>();
    c->prepare(r);
    return c;
  }
  void give_back(std::unique_ptr<Context> c) {
    std::lock_guard lock(mutex_);
    free_.push_back(std::move(c));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Context>> free_;
};

}  // namespace ingot
