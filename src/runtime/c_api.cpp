// include/ingot/ingot.h for the model that is linked around this: the embedded graph, weights and kernels.
#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/stop.h"
#include "ingot/ingot.h"
#include "ir/reader.h"
#include "planner/specialised.h"
#include "runtime/c_values.h"
#include "runtime/json.h"
#include "runtime/output_memory.h"
#include "runtime/session.h"
#include "runtime/state.h"

// Defined by the emitter. Default visibility: reached through the GOT, so that weights may be any distance away.
extern "C" {
extern const char ingot_embedded_graph[], ingot_embedded_graph_end[];
extern const char ingot_embedded_weights[], ingot_embedded_weights_end[];
extern const char ingot_embedded_kernels[], ingot_embedded_kernels_end[];
extern const ingot::KernelFn ingot_embedded_functions[];
// What packs the weights for a target: none where they are packed already, since there is only one.
extern void (*const ingot_embedded_packers[])(ingot::Graph&, const ingot::Target&);
}

struct ingot_model {
  std::unique_ptr<ingot::Session> session;
  std::string signature;
  bool plain = true;  // has_plain_ports
};

struct ingot_state {
  std::unique_ptr<ingot::State> state;
  std::string signature;
};

namespace {

thread_local std::string last_error;

ingot_status failed(ingot_status status, const char* text) noexcept {
  try {
    last_error = text;
  } catch (const std::bad_alloc&) {
    last_error.clear();
  }
  return status;
}

ingot_status guarded(auto&& body) noexcept {
  try {
    last_error.clear();
    body();
    return INGOT_OK;
  } catch (const ingot::Error& e) {
    return failed(static_cast<ingot_status>(e.kind()), e.what());
  } catch (const std::bad_alloc&) {
    return failed(INGOT_RESOURCE, "out of memory");
  } catch (const std::exception& e) {
    return failed(INGOT_INTERNAL, e.what());
  }
}

void* output_memory(ingot_tensor& out, size_t index, ingot::DType dtype, const std::vector<int64_t>& dims) {
  if (dims.size() > INGOT_MAX_RANK)
    ingot::invalid_input("output {} has rank {}, above INGOT_MAX_RANK", index, dims.size());
  int64_t elements = 1;
  for (int64_t d : dims) elements *= d;
  const auto bytes = static_cast<size_t>(ingot::byte_size(dtype, elements));
  if (!out.data) {
    out.data = ingot::take_output(bytes);
  } else if (out.bytes < bytes) {
    ingot::invalid_input("output {} needs {} bytes, has {}", index, bytes, out.bytes);
  }
  out.bytes = bytes;
  out.kind = INGOT_TENSOR;
  out.dtype = static_cast<int32_t>(dtype);
  out.rank = static_cast<int32_t>(dims.size());
  std::copy(dims.begin(), dims.end(), out.dims);
  return out.data;
}

std::vector<ingot::TensorView> views_of(const ingot_tensor* inputs, size_t count) {
  std::vector<ingot::TensorView> views;
  for (size_t i = 0; i < count; i++) views.push_back(ingot::view_from_c(inputs[i], "input " + std::to_string(i)));
  return views;
}

// What a program knows of a struct that begins with its size.
template <class T>
T options_of(const T* given, const char* what) {
  T out{};
  if (!given) return out;
  if (given->size < sizeof given->size || given->size > 4096)
    ingot::invalid_input("{}: the size of its options is {}", what, given->size);
  std::memcpy(&out, given, std::min(given->size, sizeof out));
  return out;
}

// The limits of a run, in force while it lives.
class Limited {
 public:
  Limited(const ingot_run_options* given, const char* what) {
    if (!given) return;
    const ingot_run_options o = options_of(given, what);
    stop_.after(o.timeout);
    stop_.when_set(o.cancel);
    if (o.poll) stop_.when(o.poll, o.poll_data);
    scope_.emplace(stop_);
  }

 private:
  ingot::Stop stop_;
  std::optional<ingot::StopScope> scope_;
};

// Outputs that the library gives memory to: a run that fails takes it back.
class Given {
 public:
  Given(ingot_tensor* outputs, size_t count) : outputs_(outputs), had_(count) {
    for (size_t i = 0; i < count; i++) had_[i] = outputs[i].data != nullptr;
  }
  ~Given() {
    for (size_t i = 0; !kept_ && i < had_.size(); i++)
      if (!had_[i] && outputs_[i].data) ingot::release_c(outputs_[i]);
  }
  Given(const Given&) = delete;
  Given& operator=(const Given&) = delete;
  void keep() { kept_ = true; }

 private:
  ingot_tensor* outputs_;
  std::vector<bool> had_;
  bool kept_ = false;
};

ingot::OutputAllocator allocator(ingot_tensor* outputs) {
  return [outputs](size_t i, ingot::DType dtype, const std::vector<int64_t>& dims) {
    return output_memory(outputs[i], i, dtype, dims);
  };
}

void check_output_count(size_t wanted, size_t given) {
  if (given != wanted) ingot::invalid_input("the model has {} outputs, room for {} was given", wanted, given);
}

std::string state_signature(const ingot::Graph& g, const ingot::State& state) {
  std::vector<ingot::TensorId> inputs, outputs;
  for (size_t i : state.inputs()) inputs.push_back(g.inputs[i]);
  for (size_t o : state.outputs()) outputs.push_back(g.outputs[o]);
  std::string pairs;
  for (const ingot::Tied& t : state.pairs())
    pairs += fmt::format("{}[{}, {}]", pairs.empty() ? "" : ", ", ingot::json_string(g.tensor(g.inputs[t.input]).name),
                         ingot::json_string(g.tensor(g.outputs[t.output]).name));
  return fmt::format(R"({{"inputs": {}, "outputs": {}, "state": [{}]}})", ingot::ports_json(g, inputs),
                     ingot::ports_json(g, outputs), pairs);
}

// Results that are not all tensors of numbers. All or none of the outputs are filled.
void give(const std::vector<ingot::Value>& values, ingot_tensor* outputs) {
  std::vector<ingot_tensor> made(values.size());
  size_t done = 0;
  try {
    for (; done < values.size(); done++) ingot::to_c(values[done], fmt::format("output {}", done), made[done]);
  } catch (...) {
    while (done-- > 0) ingot::release_c(made[done]);
    throw;
  }
  std::copy(made.begin(), made.end(), outputs);
}

}  // namespace

#define INGOT_EXPORT extern "C" __attribute__((visibility("default")))

INGOT_EXPORT int ingot_api_version(void) { return INGOT_API_VERSION; }

INGOT_EXPORT ingot_status ingot_create_with(const ingot_create_options* given, ingot_model** model) {
  return guarded([&] {
    if (!model) ingot::invalid_input("ingot_create: no place for the model");
    const ingot_create_options wanted = options_of(given, "ingot_create_with");
    auto size = [](const char* a, const char* b) { return static_cast<size_t>(b - a); };
    auto graph = ingot::read_graph(
        {ingot_embedded_graph, size(ingot_embedded_graph, ingot_embedded_graph_end)},
        std::as_bytes(std::span(ingot_embedded_weights, size(ingot_embedded_weights, ingot_embedded_weights_end))),
        nullptr, {.name = "embedded graph", .verify_checksums = false});
    const std::string kernels(ingot_embedded_kernels, size(ingot_embedded_kernels, ingot_embedded_kernels_end));
    auto m = std::make_unique<ingot_model>();
    ingot::SessionOptions options;
    options.threads = wanted.threads;
    if (wanted.plans != 0) ingot::set_limit(options.limits, "plans", wanted.plans);
    ingot::set_limit(options.limits, "memory_bytes", static_cast<double>(wanted.memory_bytes));
    m->signature = ingot::signature_json(*graph);
    m->plain = ingot::has_plain_ports(*graph);
    auto chosen = ingot::choose_target(kernels, ingot_embedded_functions);
    if (ingot_embedded_packers[0])
      ingot_embedded_packers[0](*graph, *chosen.target);
    else
      ingot::set_target(*graph, *chosen.target);
    m->session = std::make_unique<ingot::Session>(graph, std::move(chosen.kernels), options);
    *model = m.release();
  });
}

INGOT_EXPORT ingot_status ingot_create(int threads, ingot_model** model) {
  const ingot_create_options options{.size = sizeof options, .threads = threads, .plans = 0, .memory_bytes = 0};
  return ingot_create_with(&options, model);
}

INGOT_EXPORT void ingot_destroy(ingot_model* model) { delete model; }

INGOT_EXPORT const char* ingot_signature(const ingot_model* model) { return model ? model->signature.c_str() : ""; }

INGOT_EXPORT ingot_status ingot_run_with(ingot_model* model, const ingot_run_options* options,
                                         const ingot_tensor* inputs, size_t input_count, ingot_tensor* outputs,
                                         size_t output_count) {
  return guarded([&] {
    if (!model || (!inputs && input_count) || (!outputs && output_count))
      ingot::invalid_input("ingot_run: a null argument");
    check_output_count(model->session->graph().outputs.size(), output_count);
    const Limited limited(options, "ingot_run_with");
    if (model->plain) {
      Given given(outputs, output_count);
      model->session->run(views_of(inputs, input_count), allocator(outputs));
      return given.keep();
    }
    std::vector<ingot::Value> values;
    for (size_t i = 0; i < input_count; i++) values.push_back(ingot::from_c(inputs[i], "input " + std::to_string(i)));
    give(model->session->run(values), outputs);
  });
}

INGOT_EXPORT ingot_status ingot_run(ingot_model* model, const ingot_tensor* inputs, size_t input_count,
                                    ingot_tensor* outputs, size_t output_count) {
  return ingot_run_with(model, nullptr, inputs, input_count, outputs, output_count);
}

INGOT_EXPORT void ingot_release(ingot_tensor* output) {
  if (!output) return;
  ingot::release_c(*output);
}

INGOT_EXPORT ingot_status ingot_state_create(ingot_model* model, const char* const* inputs, const char* const* outputs,
                                             size_t count, ingot_state** state) {
  return guarded([&] {
    if (!model || !state || (count && (!inputs || !outputs)))
      ingot::invalid_input("ingot_state_create: a null argument");
    ingot::StateNames names;
    for (size_t i = 0; i < count; i++) {
      if (!inputs[i] || !outputs[i]) ingot::invalid_input("ingot_state_create: a null name");
      names.emplace_back(inputs[i], outputs[i]);
    }
    auto made = std::make_unique<ingot_state>();
    made->state = ingot::bind_state(*model->session, names);
    made->signature = state_signature(model->session->graph(), *made->state);
    *state = made.release();
  });
}

INGOT_EXPORT void ingot_state_destroy(ingot_state* state) { delete state; }

INGOT_EXPORT const char* ingot_state_signature(const ingot_state* state) {
  return state ? state->signature.c_str() : "";
}

INGOT_EXPORT ingot_status ingot_state_run_with(ingot_state* state, const ingot_run_options* options,
                                               const ingot_tensor* inputs, size_t input_count, ingot_tensor* outputs,
                                               size_t output_count) {
  return guarded([&] {
    if (!state || (!inputs && input_count) || (!outputs && output_count))
      ingot::invalid_input("ingot_state_run: a null argument");
    check_output_count(state->state->outputs().size(), output_count);
    const Limited limited(options, "ingot_state_run_with");
    Given given(outputs, output_count);
    state->state->run(views_of(inputs, input_count), allocator(outputs));
    given.keep();
  });
}

INGOT_EXPORT ingot_status ingot_state_run(ingot_state* state, const ingot_tensor* inputs, size_t input_count,
                                          ingot_tensor* outputs, size_t output_count) {
  return ingot_state_run_with(state, nullptr, inputs, input_count, outputs, output_count);
}

INGOT_EXPORT ingot_status ingot_state_reset(ingot_state* state) {
  return guarded([&] {
    if (!state) ingot::invalid_input("ingot_state_reset: a null argument");
    state->state->reset();
  });
}

INGOT_EXPORT int64_t ingot_state_length(ingot_state* state) { return state ? state->state->length() : -1; }

INGOT_EXPORT ingot_status ingot_state_get(ingot_state* state, size_t pair, ingot_tensor* value) {
  return guarded([&] {
    if (!state || !value) ingot::invalid_input("ingot_state_get: a null argument");
    state->state->get(pair, [value](size_t i, ingot::DType dtype, const std::vector<int64_t>& dims) {
      return output_memory(*value, i, dtype, dims);
    });
  });
}

INGOT_EXPORT ingot_status ingot_state_set(ingot_state* state, size_t pair, const ingot_tensor* value) {
  return guarded([&] {
    if (!state || !value) ingot::invalid_input("ingot_state_set: a null argument");
    state->state->set(pair, ingot::view_from_c(*value, "the state"));
  });
}

INGOT_EXPORT const char* ingot_error(void) { return last_error.c_str(); }
