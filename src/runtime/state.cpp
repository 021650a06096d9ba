#include "runtime/state.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/stop.h"
#include "ops/layout.h"
#include "ops/rows.h"
#include "runtime/bound_graph.h"
#include "runtime/output_memory.h"

namespace ingot {
namespace {

constexpr int64_t kFirstRoom = 64;  // rows
const std::vector<int64_t> kOne = {1};

// Rows along one axis of a tensor, in memory with room for `capacity` of them:
//   [outer][capacity][row bytes]
class Rows {
 public:
  void start(DType dtype, const std::vector<int64_t>& dims, int64_t axis) {
    dtype_ = dtype;
    axis_ = static_cast<size_t>(axis);
    dims_ = dims;
    fit(std::max({capacity_, kFirstRoom, length()}), false);
  }
  // Keeps what is there.
  void grow(int64_t capacity) { fit(capacity, true); }
  void set_length(int64_t length) { dims_[axis_] = length; }
  int64_t length() const { return dims_[axis_]; }
  int64_t capacity() const { return capacity_; }
  const std::vector<int64_t>& dims() const { return dims_; }
  TensorView memory() const {
    TensorView view{dtype_, dims_, memory_.get()};
    view.dims[axis_] = capacity_;
    return view;
  }
  void write(const void* from) { copy(static_cast<const std::byte*>(from), length(), memory_.get(), capacity_); }
  void read(void* to) const { copy(memory_.get(), capacity_, static_cast<std::byte*>(to), length()); }
  // What a run made of this memory, elsewhere.
  void take(const void* memory) { std::memcpy(memory_.get(), memory, static_cast<size_t>(size(capacity_))); }

 private:
  int64_t outer() const { return product_of(dims_, 0, axis_); }
  int64_t row_bytes() const { return byte_size(dtype_, product_of(dims_, axis_ + 1)); }
  int64_t size(int64_t capacity) const { return checked_mul(checked_mul(outer(), capacity), row_bytes()); }
  void fit(int64_t capacity, bool keep) {
    if (!memory_ || size(capacity) > bytes_ || keep) {
      Memory larger = allocate_memory(size(capacity), "a state");
      if (keep) copy(memory_.get(), capacity_, larger.get(), capacity);
      memory_ = std::move(larger);
      bytes_ = size(capacity);
    }
    capacity_ = capacity;
  }
  void copy(const std::byte* from, int64_t from_rows, std::byte* to, int64_t to_rows) const {
    const int64_t row = row_bytes(), bytes = length() * row;
    for (int64_t o = 0, n = outer(); bytes > 0 && o < n; o++)
      std::memcpy(to + o * to_rows * row, from + o * from_rows * row, static_cast<size_t>(bytes));
  }

  DType dtype_ = DType::Undefined;
  std::vector<int64_t> dims_;
  size_t axis_ = 0;
  Memory memory_;
  int64_t capacity_ = 0, bytes_ = 0;
};

struct Slot {
  BoundPair bound;
  bool given = false;    // it has a value
  bool first = false;    // which the present run has given it to begin with
  bool damaged = false;  // a run that failed had begun to change it
  Rows rows;             // bound.in_room
  ConstantPtr value;     // otherwise
  // What the present run makes of it: another tensor, or it takes over the memory.
  ConstantPtr next;
  bool taken = false;
  int64_t length = 0;  // bound.in_room: at the beginning of the run

  const std::vector<int64_t>& dims() const { return bound.in_room ? rows.dims() : value->dims; }
};

class SessionState : public State {
 public:
  SessionState(Session& session, const std::vector<Tied>& pairs)
      : State(pairs, session.graph().inputs.size(), session.graph().outputs.size()), slots_(pairs.size()) {
    bind(session);
  }

  void run(const std::vector<TensorView>& given, const OutputAllocator& allocate) override {
    std::lock_guard lock(mutex_);
    check_stop();  // others may have held it for long
    if (given.size() != inputs().size())
      invalid_input("{} inputs were given, beside the state the model takes {}", given.size(), inputs().size());
    for (size_t p = 0; p < slots_.size(); p++)
      if (slots_[p].damaged)
        throw Error(ErrorKind::InvalidInput,
                    fmt::format("the state of '{}' is lost: a run failed while it changed it", input(p).name),
                    "reset the state or set its tensors");
    try {
      start(given);
      check_lengths();
      while (!try_run(given, allocate)) {
      }
    } catch (...) {
      for (Slot& s : slots_)
        if (s.first) s.given = s.damaged = s.first = false;
      throw;
    }
    commit();
  }

  void reset() override {
    std::lock_guard lock(mutex_);
    for (Slot& s : slots_) s.given = s.damaged = false;
  }

  int64_t length() override {
    std::lock_guard lock(mutex_);
    for (const Slot& s : slots_)
      if (s.bound.axis >= 0) return s.given ? s.dims()[static_cast<size_t>(s.bound.axis)] : 0;
    return -1;
  }

  void get(size_t pair, const OutputAllocator& allocate) override {
    std::lock_guard lock(mutex_);
    const Slot& s = slot(pair);
    if (!s.given || s.damaged)
      throw Error(ErrorKind::InvalidInput, fmt::format("the state of '{}' has no value", input(pair).name),
                  "it has one once the model ran or a tensor was set");
    const std::vector<int64_t> dims = s.dims();
    void* to = allocate(pair, input(pair).info.dtype, dims);
    if (s.bound.in_room)
      s.rows.read(to);
    else if (!s.value->bytes.empty())
      std::memcpy(to, s.value->bytes.data(), s.value->bytes.size());
  }

  void set(size_t pair, const TensorView& tensor) override {
    std::lock_guard lock(mutex_);
    slot(pair);
    BoundSymbols symbols;
    check_input(input(pair), tensor, symbols);
    put(pair, tensor.dims, tensor.data);
  }

 private:
  const Graph& graph() const { return session_->graph(); }
  const Tensor& input(size_t pair) const { return graph().tensor(graph().inputs[pairs()[pair].input]); }
  Slot& slot(size_t pair) {
    if (pair >= slots_.size()) invalid_input("the state has {} tensors, there is no {}", slots_.size(), pair);
    return slots_[pair];
  }

  void bind(Session& session) {
    session_ = &session;
    bound_ = session.bound_graph(pairs());
    memo_.reset();
    const Uses uses(graph());
    for (size_t p = 0; p < slots_.size(); p++) {
      if (bound_)
        slots_[p].bound = bound_->pairs[p];
      else
        slots_[p].bound.axis = growing_axis(graph(), uses, pairs()[p]);
    }
  }

  // To the session that takes dims of the same name to be independent, with what is there.
  void bind_again(Session& session) {
    std::vector<ConstantPtr> values(slots_.size());
    for (size_t p = 0; p < slots_.size(); p++) {
      const std::vector<int64_t> dims = slots_[p].dims();
      std::byte* data = nullptr;
      values[p] = make_recycled(input(p).info.dtype, dims, &data);
      if (slots_[p].bound.in_room)
        slots_[p].rows.read(data);
      else if (!slots_[p].value->bytes.empty())
        std::memcpy(data, slots_[p].value->bytes.data(), slots_[p].value->bytes.size());
    }
    bind(session);
    for (size_t p = 0; p < slots_.size(); p++) put(p, values[p]->dims, values[p]->bytes.data());
  }

  // data: null for zeros.
  void put(size_t pair, const std::vector<int64_t>& dims, const void* data) {
    Slot& s = slots_[pair];
    const DType dtype = input(pair).info.dtype;
    if (s.bound.in_room) {
      s.rows.start(dtype, dims, s.bound.axis);
      if (data) s.rows.write(data);
    } else {
      std::byte* to = nullptr;
      s.value = make_recycled(dtype, dims, &to);
      if (data && !s.value->bytes.empty())
        std::memcpy(to, data, s.value->bytes.size());
      else
        std::memset(to, 0, s.value->bytes.size());
    }
    s.given = true;
    s.damaged = false;
  }

  // Rows that the graph takes to be as many have one length.
  void check_lengths() const {
    for (size_t p = 0; p < slots_.size(); p++)
      for (size_t q = 0; q < p; q++) {
        const Slot &a = slots_[q], &b = slots_[p];
        if (!a.bound.in_room || !b.bound.in_room || a.bound.length_input != b.bound.length_input) continue;
        if (a.rows.length() != b.rows.length())
          invalid_input("the state has {} rows of '{}' and {} of '{}', which must be as many", a.rows.length(),
                        input(q).name, b.rows.length(), input(p).name);
      }
  }

  // What has no value yet gets one: of length 0 along the axis it grows, zeros elsewhere. Other free dims are those of
  // the same name in what is given.
  void start(const std::vector<TensorView>& given) {
    if (std::all_of(slots_.begin(), slots_.end(), [](const Slot& s) { return s.given; })) return;
    std::map<std::string, int64_t> sizes;
    auto learn = [&](const Tensor& t, const std::vector<int64_t>& dims) {
      if (t.info.shape && t.info.shape->size() == dims.size())
        for (size_t d = 0; d < dims.size(); d++) sizes.try_emplace((*t.info.shape)[d].str(), dims[d]);
    };
    for (size_t i = 0; i < given.size(); i++) learn(graph().tensor(graph().inputs[inputs()[i]]), given[i].dims);
    for (size_t p = 0; p < slots_.size(); p++)
      if (slots_[p].given) learn(input(p), slots_[p].dims());
    for (size_t p = 0; p < slots_.size(); p++) {
      if (slots_[p].given) continue;
      const auto& shape = input(p).info.shape;
      std::vector<int64_t> dims;
      for (size_t d = 0; shape && d < shape->size(); d++) {
        const Dim& dim = (*shape)[d];
        const auto found = sizes.find(dim.str());
        if (dim.is_const())
          dims.push_back(dim.value());
        else if (static_cast<int64_t>(d) == slots_[p].bound.axis)
          dims.push_back(0);
        else if (found != sizes.end())
          dims.push_back(found->second);
      }
      if (!shape || dims.size() != shape->size())
        throw Error(ErrorKind::InvalidInput,
                    fmt::format("the first shape of the state '{}' {} is not known", input(p).name,
                                shape ? str(*shape) : "[...]"),
                    "set the tensor before the first run");
      put(p, dims, nullptr);
      slots_[p].first = true;
    }
  }

  // False: there was something to be made larger, or another session to be taken.
  bool try_run(const std::vector<TensorView>& given, const OutputAllocator& allocate) try {
    for (Slot& s : slots_) {
      s.taken = false;
      s.next = nullptr;
    }
    if (bound_)
      run_region(given, allocate);
    else
      run_values(given, allocate);
    return true;
  } catch (const RoomNeeded& r) {
    const auto needs = std::find_if(pairs().begin(), pairs().end(),
                                    [&](const Tied& t) { return bound_->graph->inputs[t.input] == r.memory; });
    const int64_t before = slots_[static_cast<size_t>(needs - pairs().begin())].rows.capacity();
    for (Slot& s : slots_)  // all of the same length will need it
      if (s.bound.in_room && s.rows.capacity() == before) s.rows.grow(std::max(r.rows, 2 * before));
    return false;
  } catch (const DimsDisagree& e) {
    bind_again(session_->with_independent_dims(e));
    return false;
  } catch (...) {
    for (Slot& s : slots_) s.damaged |= s.taken && (!s.bound.in_room || s.bound.overwrites);
    throw;
  }

  void run_region(const std::vector<TensorView>& given, const OutputAllocator& allocate) {
    views_.resize(bound_->graph->inputs.size());
    for (size_t i = 0; i < given.size(); i++) views_[inputs()[i]] = given[i];
    std::vector<OutputAllocator> places(bound_->graph->outputs.size());
    counts_.resize(places.size());
    for (size_t o = 0; o < outputs().size(); o++)
      places[outputs()[o]] = [&allocate, o](size_t, DType dtype, const std::vector<int64_t>& dims) {
        return allocate(o, dtype, dims);
      };
    for (size_t p = 0; p < slots_.size(); p++) {
      Slot& s = slots_[p];
      places[pairs()[p].output] = [&s](size_t, DType dtype, const std::vector<int64_t>& dims) {
        std::byte* data = nullptr;
        s.next = make_recycled(dtype, dims, &data);
        return data;
      };
      TensorView& view = views_[pairs()[p].input];
      if (!s.bound.in_room) {
        set_view(view, *s.value);
        continue;
      }
      view = s.rows.memory();
      s.length = s.rows.length();
      views_[s.bound.length_input] = {DType::I64, kOne, &s.length};
      places[s.bound.rows_output] = [this](size_t o, DType, const std::vector<int64_t>&) { return &counts_[o]; };
    }
    bound_->region->run(
        views_, [&](size_t o, DType dtype, const std::vector<int64_t>& dims) { return places[o](o, dtype, dims); },
        memo_,
        [&](size_t o, const std::vector<int64_t>&) {
          for (size_t p = 0; p < slots_.size(); p++)
            if (pairs()[p].output == o) slots_[p].taken = true;
        });
  }

  void run_values(const std::vector<TensorView>& given, const OutputAllocator& allocate) {
    std::vector<Value> values(graph().inputs.size());
    for (size_t i = 0; i < given.size(); i++) values[inputs()[i]] = borrow(given[i]);
    for (size_t p = 0; p < slots_.size(); p++) values[pairs()[p].input] = slots_[p].value;
    const std::vector<Value> results = session_->run(values);
    for (size_t p = 0; p < slots_.size(); p++) slots_[p].next = results[pairs()[p].output].tensor_ptr();
    for (size_t o = 0; o < outputs().size(); o++) {
      const Constant& c = results[outputs()[o]].tensor();
      void* to = allocate(o, c.dtype, c.dims);
      if (!c.bytes.empty()) std::memcpy(to, c.bytes.data(), c.bytes.size());
    }
  }

  void commit() {
    for (Slot& s : slots_) {
      if (!s.bound.in_room && s.next) s.value = std::move(s.next);
      if (s.bound.in_room && s.next) s.rows.take(s.next->bytes.data());  // a copy, since old rows were read later
      if (s.bound.in_room) s.rows.set_length(counts_[s.bound.rows_output]);
      s.next = nullptr;
      s.first = false;
    }
  }

  Session* session_ = nullptr;
  const BoundGraph* bound_ = nullptr;  // null: the graph is more than one region
  Region::MemoPtr memo_;
  std::mutex mutex_;
  std::vector<Slot> slots_;  // by pair
  std::vector<TensorView> views_;
  std::vector<int64_t> counts_;  // of rows after the present run, by output
};

}  // namespace

State::State(std::vector<Tied> pairs, size_t inputs, size_t outputs) : pairs_(std::move(pairs)) {
  for (size_t i = 0; i < inputs; i++)
    if (std::none_of(pairs_.begin(), pairs_.end(), [&](const Tied& t) { return t.input == i; })) inputs_.push_back(i);
  for (size_t o = 0; o < outputs; o++)
    if (std::none_of(pairs_.begin(), pairs_.end(), [&](const Tied& t) { return t.output == o; })) outputs_.push_back(o);
}

std::unique_ptr<State> bind_state(Session& session, const StateNames& names) {
  if (!has_plain_ports(session.graph()))
    unsupported("a state can be bound only where all inputs and outputs are tensors of numbers");
  return std::make_unique<SessionState>(session, state_pairs(session.graph(), names));
}

}  // namespace ingot
