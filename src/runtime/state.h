// What a model carries from one run to the next, kept where the runs are: outputs that become inputs of the next run,
// as keys and values of a decoder do. A run takes the other inputs and gives the other outputs.
//
// Three ways, found for each pair when the state is bound or planned:
//  - Concat(input, new) that only attention reads (or a Pad and what scatters into it, as com.microsoft's
//    GroupQueryAttention does): new rows are written behind the old ones, in memory that has room for more and doubles
//    when it is full. Nothing is copied.
//  - a result of the same size that may take over its operand's memory (ScatterND and the like): made in place.
//  - anything else: two memories in turn.
// A state is used by one run at a time; others wait. Several states of one session run side by side.
#pragma once
#include <memory>
#include <vector>

#include "runtime/session.h"
#include "runtime/state_pairs.h"

namespace ingot {

class State {
 public:
  explicit State(std::vector<Tied> pairs, size_t inputs, size_t outputs);
  virtual ~State() = default;

  const std::vector<Tied>& pairs() const { return pairs_; }
  // The model's other inputs and outputs, by index: what run takes and gives, in this order.
  const std::vector<size_t>& inputs() const { return inputs_; }
  const std::vector<size_t>& outputs() const { return outputs_; }

  // `allocate` is asked for outputs() 0, 1, ... When a run fails, the state is as it was; or, if it was being changed
  // in place, an error until it is reset or set.
  virtual void run(const std::vector<TensorView>& inputs, const OutputAllocator& allocate) = 0;
  // As it was at first: of length 0 where it grows, zeros elsewhere. Memory is kept.
  virtual void reset() = 0;
  // Of the first pair that grows, along its axis; -1 where none does.
  virtual int64_t length() = 0;
  // The tensor of a pair; one that no run or set has given a shape is an error.
  virtual void get(size_t pair, const OutputAllocator& allocate) = 0;
  virtual void set(size_t pair, const TensorView&) = 0;

 private:
  const std::vector<Tied> pairs_;
  std::vector<size_t> inputs_, outputs_;
};

// Names as for state_pairs. The session must outlive the state.
std::unique_ptr<State> bind_state(Session&, const StateNames&);

}  // namespace ingot
