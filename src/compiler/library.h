// A model.so, opened: the C interface of include/ingot/ingot.h behind the calls a Session has, so that the command
// line and the Python package treat both alike. A library is code: it is opened only when the user names it.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/dim.h"
#include "base/dtype.h"
#include "ingot/ingot.h"
#include "runtime/session.h"
#include "runtime/state.h"

namespace ingot {

// One input or output of a model: what a caller has to know of it.
struct Port {
  std::string name;
  DType dtype = DType::Undefined;
  std::optional<Shape> shape;  // absent: rank unknown
  Form form = Form::Tensor;
};

std::vector<Port> input_ports(const Graph&);
std::vector<Port> output_ports(const Graph&);

// Is this file a native library, by its first bytes?
bool is_library_file(const std::string& path);

// What emit_library appends to a library of `size` bytes, so that damage is found before code of it runs.
std::string library_seal(int64_t size, const std::string& hash);
// Io unless the file is as long as its headers say and, where emit_library sealed it, has the bytes it had then. A
// library that is cut off would be mapped all the same, and the first touch of what is missing a SIGBUS.
void check_library(const std::string& path);

// dlopen that always looks at the file: the C library otherwise answers with what it once loaded from the same name,
// even if another file has that name by now. nullptr on failure, as dlopen.
void* open_library(const std::string& path);

class LibraryModel {
 public:
  // Throws Io when the file is missing or no library, InvalidModel when it does not export the interface.
  explicit LibraryModel(const std::string& path, const SessionOptions& = {});
  ~LibraryModel();
  LibraryModel(const LibraryModel&) = delete;
  LibraryModel& operator=(const LibraryModel&) = delete;

  const std::vector<Port>& inputs() const { return inputs_; }
  const std::vector<Port>& outputs() const { return outputs_; }
  // Within the Stop in force, as Session::run; Unsupported for a library that was made before there were limits.
  void run(const std::vector<TensorView>& inputs, const OutputAllocator& allocate);
  std::vector<Value> run(const std::vector<Value>& inputs);
  // The library must outlive the state.
  std::unique_ptr<State> bind_state(const StateNames&);

 private:
  class BoundState;
  template <class Run>
  void run(const std::vector<TensorView>& inputs, const std::vector<size_t>& input_ids,
           const std::vector<size_t>& output_ids, const OutputAllocator& allocate, const Run& call) const;
  void hand_over(ingot_tensor&, size_t index, const OutputAllocator& allocate) const;
  void check(ingot_status status) const {
    if (status != INGOT_OK) raise(status);
  }
  template <class Run, class RunWith>
  ingot_status within_limits(Run run, RunWith run_with) const;
  void read_signature(const std::string& path);
  [[noreturn]] void raise(ingot_status) const;

  void* handle_ = nullptr;
  ingot_model* model_ = nullptr;
  ingot_destroy_fn destroy_ = nullptr;
  ingot_signature_fn signature_ = nullptr;
  ingot_run_fn run_ = nullptr;
  ingot_run_with_fn run_with_ = nullptr;  // null in older libraries, as state_.run_with
  ingot_release_fn release_ = nullptr;
  ingot_error_fn error_ = nullptr;
  struct {
    ingot_state_create_fn create = nullptr;
    ingot_state_destroy_fn destroy = nullptr;
    ingot_state_signature_fn signature = nullptr;
    ingot_state_run_fn run = nullptr;
    ingot_state_run_with_fn run_with = nullptr;
    ingot_state_reset_fn reset = nullptr;
    ingot_state_length_fn length = nullptr;
    ingot_state_get_fn get = nullptr;
    ingot_state_set_fn set = nullptr;
  } state_;
  std::vector<Port> inputs_, outputs_;
};

}  // namespace ingot
