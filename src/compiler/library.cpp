#include "compiler/library.h"

#include <dlfcn.h>
#include <elf.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/stop.h"
#include "runtime/c_values.h"

namespace ingot {
namespace {

std::vector<Port> ports_of(const Graph& graph, const std::vector<TensorId>& ids) {
  std::vector<Port> out;
  for (TensorId id : ids) {
    const Tensor& t = graph.tensor(id);
    out.push_back({t.name, t.info.dtype, t.info.shape, t.info.form});
  }
  return out;
}

const Json& need(const Json& json, const char* key) {
  const Json* found = json.find(key);
  if (!found) invalid_model("the signature has no '{}'", key);
  return *found;
}
const std::string& text_of(const Json& json) {
  if (!json.text()) invalid_model("the signature has something else for a text");
  return *json.text();
}
const Json::Array& items_of(const Json& json) {
  if (!json.array()) invalid_model("the signature has something else for a list");
  return *json.array();
}

Dim dim_from_json(const Json& d) {
  if (d.integer()) return *d.integer();
  return text_of(d) == "?" ? Dim::unknown() : Dim::symbol(text_of(d));
}

std::vector<Port> ports_from_json(const Json& list) {
  std::vector<Port> out;
  for (const Json& entry : items_of(list)) {
    Port port;
    port.name = text_of(need(entry, "name"));
    const std::string& dtype = text_of(need(entry, "dtype"));
    port.dtype = dtype_from_name(dtype).value_or(DType::Undefined);
    if (port.dtype == DType::Undefined) invalid_model("the signature has an unknown element type '{}'", dtype);
    if (const Json& shape = need(entry, "shape"); shape.array()) {
      port.shape.emplace();
      for (const Json& d : *shape.array()) port.shape->push_back(dim_from_json(d));
    }
    if (const Json* named = entry.find("form")) {
      const auto form = form_from_name(text_of(*named));
      if (!form) invalid_model("the signature has an unknown form");
      port.form = *form;
    }
    out.push_back(std::move(port));
  }
  return out;
}

ingot_tensor as_c(const TensorView& view, const Port& port) {
  ingot_tensor t{};
  if (view.dims.size() > INGOT_MAX_RANK)
    invalid_input("input '{}' has rank {}; the C interface takes at most {}", port.name, view.dims.size(),
                  INGOT_MAX_RANK);
  int64_t elements = 1;
  t.rank = static_cast<int32_t>(view.dims.size());
  for (size_t i = 0; i < view.dims.size(); i++) {
    t.dims[i] = view.dims[i];
    elements *= view.dims[i];
  }
  t.data = view.data;
  t.dtype = static_cast<int32_t>(view.dtype);
  t.bytes = static_cast<size_t>(byte_size(view.dtype, elements));
  return t;
}

std::vector<size_t> every(const std::vector<Port>& ports) {
  std::vector<size_t> out(ports.size());
  std::iota(out.begin(), out.end(), size_t{0});
  return out;
}

// A copy in memory of its own.
Value owned(const Value& v) {
  return v.map(
      [](const ConstantPtr& c) { return c->dtype == DType::String ? c : make_constant(c->dtype, c->dims, c->bytes); });
}

constexpr std::string_view kSeal = "ingot-library";

}  // namespace

std::string library_seal(int64_t size, const std::string& hash) { return fmt::format("{} {} {}\n", kSeal, size, hash); }

void check_library(const std::string& path) {
  InputFile file(path);
  std::vector<std::byte> piece(size_t{1} << 20);
  size_t got = file.read(piece);
  Elf64_Ehdr header{};
  if (got >= sizeof header) std::memcpy(&header, piece.data(), sizeof header);
  uint64_t end = 0;  // the section headers come last
  if (__builtin_add_overflow(header.e_shoff, uint64_t{header.e_shnum} * header.e_shentsize, &end) || end == 0 ||
      end > file.size())
    throw Error(ErrorKind::Io, fmt::format("{}: is cut off or damaged: it has {} bytes", path, file.size()),
                "copy or compile it again");
  HashStream hash;
  std::string after;  // the library
  for (uint64_t at = 0; got > 0; at += got, got = file.read(piece)) {
    const size_t inside = std::min<uint64_t>(got, end - std::min(at, end));
    hash.add(std::span(piece).first(inside));
    after.append(reinterpret_cast<const char*>(piece.data()) + inside, got - inside);
  }
  if (after.starts_with(kSeal) && !after.starts_with(library_seal(static_cast<int64_t>(end), hash.hex())))
    throw Error(ErrorKind::Io, fmt::format("{}: is damaged: its checksum differs", path), "copy or compile it again");
}

std::vector<Port> input_ports(const Graph& graph) { return ports_of(graph, graph.inputs); }
std::vector<Port> output_ports(const Graph& graph) { return ports_of(graph, graph.outputs); }

bool is_library_file(const std::string& path) {
  if (!std::filesystem::is_regular_file(path)) return false;
  std::ifstream file(path, std::ios::binary);
  char magic[4] = {};
  file.read(magic, 4);
  return file.gcount() == 4 && std::memcmp(magic,
                                           "\x7f"
                                           "ELF",
                                           4) == 0;
}

void* open_library(const std::string& path) {
  // The C library compares names as text, so every call spells the folder's end in its own way: "/" and "./" as the
  // bits of a counter.
  static std::atomic<uint32_t> counter{0};
  std::string spelling;
  for (uint32_t n = counter.fetch_add(1) + 1; n != 0; n >>= 1) spelling += n & 1 ? "./" : "/";
  const size_t name = path.rfind('/') + 1;
  return dlopen((path.substr(0, name) + spelling + path.substr(name)).c_str(), RTLD_NOW | RTLD_LOCAL);
}

LibraryModel::LibraryModel(const std::string& path, const SessionOptions& options) {
  // An absolute path: dlopen looks for a bare name in the system's folders instead of here.
  const std::string absolute = std::filesystem::absolute(path).string();
  if (!std::filesystem::exists(absolute)) throw Error(ErrorKind::Io, fmt::format("{}: no such file", path));
  check_library(absolute);
  handle_ = open_library(absolute);
  if (!handle_) {
    const char* why = dlerror();
    throw Error(ErrorKind::Io,
                fmt::format("{}: cannot be loaded as a library: {}", path, why ? why : "unknown reason"));
  }
  auto symbol = [&]<class Fn>(Fn& fn, const char* name) {
    fn = reinterpret_cast<Fn>(dlsym(handle_, name));
    if (fn) return;
    dlclose(handle_);
    throw Error(ErrorKind::InvalidModel, fmt::format("{}: does not export '{}'", path, name),
                "only libraries made by `ingot compile -o model.so` or Graph.emit can be loaded");
  };
  ingot_api_version_fn version = nullptr;
  ingot_create_fn create = nullptr;
  symbol(version, "ingot_api_version");
  symbol(create, "ingot_create");
  symbol(destroy_, "ingot_destroy");
  symbol(signature_, "ingot_signature");
  symbol(run_, "ingot_run");
  symbol(release_, "ingot_release");
  symbol(error_, "ingot_error");
  if (const int found = version(); found != INGOT_API_VERSION) {
    dlclose(handle_);
    throw Error(ErrorKind::Unsupported,
                fmt::format("{}: made for interface version {}, this is version {}", path, found, INGOT_API_VERSION),
                "compile the model again with this version of Ingot");
  }
  auto later = [&]<class Fn>(Fn& fn, const char* name) { fn = reinterpret_cast<Fn>(dlsym(handle_, name)); };
  ingot_create_with_fn create_with = nullptr;
  later(create_with, "ingot_create_with");
  later(run_with_, "ingot_run_with");
  later(state_.run_with, "ingot_state_run_with");
  symbol(state_.create, "ingot_state_create");
  symbol(state_.destroy, "ingot_state_destroy");
  symbol(state_.signature, "ingot_state_signature");
  symbol(state_.run, "ingot_state_run");
  symbol(state_.reset, "ingot_state_reset");
  symbol(state_.length, "ingot_state_length");
  symbol(state_.get, "ingot_state_get");
  symbol(state_.set, "ingot_state_set");
  try {
    const ingot_create_options wanted{.size = sizeof wanted,
                                      .threads = options.threads,
                                      .plans = static_cast<int32_t>(std::min(options.limits.plans, 1e9)),
                                      .memory_bytes = static_cast<uint64_t>(options.limits.memory_bytes)};
    check(create_with ? create_with(&wanted, &model_) : create(options.threads, &model_));
    read_signature(path);
  } catch (...) {
    if (model_) destroy_(model_);
    dlclose(handle_);
    throw;
  }
}

LibraryModel::~LibraryModel() {
  destroy_(model_);
  dlclose(handle_);
}

void LibraryModel::read_signature(const std::string& path) {
  try {
    const Json json = Json::parse(signature_(model_));
    inputs_ = ports_from_json(need(json, "inputs"));
    outputs_ = ports_from_json(need(json, "outputs"));
  } catch (const Error& e) {
    throw Error(ErrorKind::InvalidModel, fmt::format("{}: its signature cannot be read: {}", path, e.message()));
  }
}

void LibraryModel::raise(ingot_status status) const {
  // The text carries its own hint line: taken apart so that it is not printed twice.
  std::string text = error_(), hint;
  if (const size_t at = text.find("\nhint: "); at != std::string::npos) {
    hint = text.substr(at + 7);
    text.resize(at);
  }
  throw Error(static_cast<ErrorKind>(status), text, hint);
}

// run(), or run_with(options) where the thread has a Stop in force.
template <class Run, class RunWith>
ingot_status LibraryModel::within_limits(Run run, RunWith run_with) const {
  Stop* stop = stop_in_force;
  if (!stop || (!run_with_ && !stop->cuts())) return run();
  if (!run_with_)
    throw Error(ErrorKind::Unsupported, "the library knows no deadlines",
                "compile the model again with this version of Ingot");
  stop->check();
  ingot_run_options options{};
  options.size = sizeof options;
  options.timeout = stop->has_deadline() ? std::max(stop->seconds_left(), 1e-9) : 0;
  options.cancel = stop->cancel();
  options.poll = stop->poll();
  options.poll_data = stop->poll_data();
  return run_with(&options);
}

// Views of some of the inputs, memory for some of the outputs; call(in, in_count, out, out_count) runs.
template <class Run>
void LibraryModel::run(const std::vector<TensorView>& inputs, const std::vector<size_t>& input_ids,
                       const std::vector<size_t>& output_ids, const OutputAllocator& allocate, const Run& call) const {
  if (inputs.size() != input_ids.size())
    invalid_input("the model has {} inputs, {} were given", input_ids.size(), inputs.size());
  std::vector<ingot_tensor> in, out(output_ids.size());
  for (size_t i = 0; i < inputs.size(); i++) in.push_back(as_c(inputs[i], inputs_[input_ids[i]]));
  // Outputs of fixed size are written where the caller wants them; the others the library allocates and we copy.
  std::vector<bool> ours(out.size(), false);
  for (size_t i = 0; i < out.size(); i++) {
    const Port& port = outputs_[output_ids[i]];
    if (!port.shape || !is_const(*port.shape)) continue;
    TensorView view{port.dtype, numbers(*port.shape), nullptr};
    view.data = allocate(i, view.dtype, view.dims);
    out[i] = as_c(view, port);
    ours[i] = true;
  }
  check(call(in.data(), in.size(), out.data(), out.size()));
  for (size_t i = 0; i < out.size(); i++)
    if (!ours[i]) hand_over(out[i], i, allocate);
}

// A tensor of the library's to the caller.
void LibraryModel::hand_over(ingot_tensor& t, size_t index, const OutputAllocator& allocate) const {
  void* to = allocate(index, static_cast<DType>(t.dtype), {t.dims, t.dims + t.rank});
  if (t.bytes) std::memcpy(to, t.data, t.bytes);
  release_(&t);
}

void LibraryModel::run(const std::vector<TensorView>& inputs, const OutputAllocator& allocate) {
  run(inputs, every(inputs_), every(outputs_), allocate,
      [&](const ingot_tensor* in, size_t in_count, ingot_tensor* out, size_t out_count) {
        return within_limits(
            [&] { return run_(model_, in, in_count, out, out_count); },
            [&](const ingot_run_options* o) { return run_with_(model_, o, in, in_count, out, out_count); });
      });
}

std::vector<Value> LibraryModel::run(const std::vector<Value>& inputs) {
  if (inputs.size() != inputs_.size())
    invalid_input("the model has {} inputs, {} were given", inputs_.size(), inputs.size());
  std::vector<ingot_tensor> in, out(outputs_.size());
  struct Release {
    std::vector<ingot_tensor>& in;
    ~Release() {
      for (ingot_tensor& t : in) release_c(t);
    }
  } release{in};
  for (size_t i = 0; i < inputs.size(); i++) to_c(inputs[i], inputs_[i].name, in.emplace_back());
  check(within_limits(
      [&] { return run_(model_, in.data(), in.size(), out.data(), out.size()); },
      [&](const ingot_run_options* o) { return run_with_(model_, o, in.data(), in.size(), out.data(), out.size()); }));
  std::vector<Value> values;
  for (size_t i = 0; i < out.size(); i++) {
    values.push_back(owned(from_c(out[i], outputs_[i].name)));
    release_(&out[i]);
  }
  return values;
}

class LibraryModel::BoundState : public State {
 public:
  BoundState(const LibraryModel& model, ingot_state* state, const std::vector<Tied>& pairs)
      : State(pairs, model.inputs_.size(), model.outputs_.size()), model_(model), state_(state) {}
  ~BoundState() override { model_.state_.destroy(state_); }

  void run(const std::vector<TensorView>& given, const OutputAllocator& allocate) override {
    model_.run(given, inputs(), outputs(), allocate,
               [&](const ingot_tensor* in, size_t in_count, ingot_tensor* out, size_t out_count) {
                 return model_.within_limits([&] { return model_.state_.run(state_, in, in_count, out, out_count); },
                                             [&](const ingot_run_options* o) {
                                               return model_.state_.run_with(state_, o, in, in_count, out, out_count);
                                             });
               });
  }
  void reset() override { model_.check(model_.state_.reset(state_)); }
  int64_t length() override { return model_.state_.length(state_); }
  void get(size_t pair, const OutputAllocator& allocate) override {
    ingot_tensor t{};
    model_.check(model_.state_.get(state_, pair, &t));
    model_.hand_over(t, pair, allocate);
  }
  void set(size_t pair, const TensorView& tensor) override {
    const ingot_tensor t = as_c(tensor, model_.inputs_[pairs()[pair].input]);
    model_.check(model_.state_.set(state_, pair, &t));
  }

 private:
  const LibraryModel& model_;
  ingot_state* state_;
};

std::unique_ptr<State> LibraryModel::bind_state(const StateNames& names) {
  std::vector<const char*> inputs, outputs;
  for (const auto& [input, output] : names) {
    inputs.push_back(input.c_str());
    outputs.push_back(output.c_str());
  }
  ingot_state* state = nullptr;
  check(state_.create(model_, inputs.data(), outputs.data(), names.size(), &state));
  const Json json = Json::parse(state_.signature(state));
  auto index = [](const std::vector<Port>& ports, const std::string& name) {
    return static_cast<size_t>(std::find_if(ports.begin(), ports.end(), [&](const Port& p) { return p.name == name; }) -
                               ports.begin());
  };
  std::vector<Tied> pairs;
  for (const Json& pair : items_of(need(json, "state")))
    pairs.push_back({index(inputs_, text_of(items_of(pair).at(0))), index(outputs_, text_of(items_of(pair).at(1)))});
  return std::make_unique<BoundState>(*this, state, pairs);
}

}  // namespace ingot
