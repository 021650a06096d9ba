// runtime/c_api.cpp serves the model that is linked around it. Here that is three models in turn, in memory that is as
// long as the longest of them: the text of the others ends with spaces.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "ingot/ingot.h"
#include "kernels/abi.h"
#include "targets.h"

#define INGOT_TEXT_ROOM "1024"
asm(".pushsection .data\n"
    ".globl ingot_embedded_graph, ingot_embedded_graph_end, ingot_embedded_weights, ingot_embedded_weights_end\n"
    ".globl ingot_embedded_kernels, ingot_embedded_kernels_end\n"
    "ingot_embedded_graph: .fill " INGOT_TEXT_ROOM
    ", 1, 32\n"
    "ingot_embedded_graph_end:\n"
    ".balign 64\n"
    "ingot_embedded_weights: ingot_embedded_weights_end:\n"
    "ingot_embedded_kernels: .ascii \"target x86-64-v2 0\\n\"\n"
    "ingot_embedded_kernels_end:\n"
    ".popsection\n");

namespace ingot {
class Graph;
struct Target;
}  // namespace ingot

extern "C" {
extern char ingot_embedded_graph[], ingot_embedded_graph_end[];
extern const ingot::KernelFn ingot_embedded_functions[];
const ingot::KernelFn ingot_embedded_functions[] = {nullptr};
extern void (*const ingot_embedded_packers[])(ingot::Graph&, const ingot::Target&);
void (*const ingot_embedded_packers[])(ingot::Graph&, const ingot::Target&) = {nullptr};
}

namespace ingot {
namespace {

constexpr std::string_view kModels[] = {
    R"(format: ingot-ir
version: 1
model: numbers
weights: {file: weights.bin, size: 0}
inputs: [x, w]
outputs: [z, s]
tensors:
  x: {dtype: f32, shape: [rows, k]}
  w: {dtype: f32, shape: [k, 2]}
  z: {dtype: f32, shape: [rows, 2]}
  s: {dtype: i64, shape: [2]}
operator:
  a: {type: Shape, input: [x], output: [s]}
  b: {type: MatMul, input: [x, w], output: [z]}
)",
    R"(format: ingot-ir
version: 1
model: values
weights: {file: weights.bin, size: 0}
inputs: [a, q, t, o]
outputs: [b, r, h]
tensors:
  a: {dtype: string, shape: [rows]}
  q: {dtype: f32, form: sequence}
  t: {dtype: f32}
  o: {dtype: f32, form: optional}
  b: {dtype: string, shape: [rows]}
  r: {dtype: f32, form: sequence}
  h: {dtype: bool, shape: []}
operator:
  a: {type: StringConcat, input: [a, a], output: [b]}
  b: {type: SequenceInsert, input: [q, t], output: [r]}
  c: {type: OptionalHasElement, input: [o], output: [h]}
)",
    R"(format: ingot-ir
version: 1
model: state
weights: {file: weights.bin, size: 0}
inputs: [past, x]
outputs: [present, s]
tensors:
  past: {dtype: f32, shape: [1, p, 4]}
  x: {dtype: f32, shape: [1, rows, 4]}
  present: {dtype: f32, shape: [1, rows + p, 4]}
  s: {dtype: f32, shape: []}
operator:
  a: {type: Concat, input: [past, x], output: [present], attr: {axis: 1}}
  b: {type: ReduceSum, input: [present], output: [s], attr: {keepdims: 0}}
)"};
constexpr size_t kPorts[][2] = {{2, 2}, {4, 3}, {2, 2}};

ingot_model* make_model(std::string_view text) {
  const auto room = static_cast<size_t>(ingot_embedded_graph_end - ingot_embedded_graph);
  if (text.size() > room) abort();
  std::memset(ingot_embedded_graph, ' ', room);
  std::memcpy(ingot_embedded_graph, text.data(), text.size());
  ingot_model* model = nullptr;
  if (ingot_create(1, &model) != INGOT_OK) {
    fprintf(stderr, "ERROR: %s\n", ingot_error());
    abort();
  }
  return model;
}

// Calls out of bytes. Memory at `data` is as long as `bytes` says, which is all that the interface asks of a caller.
class Calls {
 public:
  explicit Calls(fuzz::Bytes bytes) : bytes_(bytes) {}

  bool more() const { return !bytes_.empty(); }
  uint8_t next() {
    if (bytes_.empty()) return 0;
    const uint8_t b = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return b;
  }

  // One byte that says what it is, its dims, then its contents.
  ingot_tensor tensor(int depth = 0) {
    ingot_tensor t{};
    const uint8_t how = next();
    constexpr int32_t kTypes[] = {INGOT_F32, INGOT_STRING, INGOT_F32, INGOT_I64, INGOT_BOOL, INGOT_BF16, 22, 99};
    t.dtype = kTypes[how & 7];
    t.kind = how & 64 ? (how >> 3 & 3) : INGOT_TENSOR;
    const uint8_t rank = next();
    t.rank = rank == 255 ? -1 : rank % (INGOT_MAX_RANK + 2);
    for (int32_t d = 0; d < std::min(t.rank, INGOT_MAX_RANK); d++) {
      const uint8_t dim = next();
      t.dims[d] = dim < 200 ? dim % 9 : dim == 255 ? -1 : int64_t{1} << (dim - 192);
    }
    const size_t items = next() % 16;
    if (t.kind == INGOT_SEQUENCE) {
      auto* list = static_cast<ingot_tensor*>(take(items * sizeof(ingot_tensor)));
      for (size_t i = 0; i < items; i++) list[i] = depth < 3 ? tensor(depth + 1) : ingot_tensor{.kind = INGOT_NONE};
      t.data = list;
      t.bytes = items * sizeof(ingot_tensor);
    } else if (t.dtype == INGOT_STRING) {
      auto* list = static_cast<const char**>(take(items * sizeof(char*)));
      for (size_t i = 0; i < items; i++) list[i] = i % 4 == 3 ? nullptr : text(next() % 8);
      t.data = list;
      t.bytes = items * sizeof(char*);
    } else {
      t.bytes = items * 16 + (how & 128 ? next() : 0);
      t.data = take(t.bytes);
      for (size_t i = 0; i < t.bytes; i++) static_cast<uint8_t*>(t.data)[i] = next();
    }
    if (how == 255) t.data = nullptr;
    return t;
  }

  // Where a result goes: nowhere yet, or memory of the caller's.
  ingot_tensor place() {
    ingot_tensor t{};
    const uint8_t size = next();
    if (size & 1) {
      t.bytes = size;
      t.data = take(size);
    }
    return t;
  }

  bool owns(const void* data) const {
    return std::any_of(taken_.begin(), taken_.end(), [&](const auto& m) { return m.get() == data; });
  }

  const char* text(size_t size) {
    auto* s = static_cast<char*>(take(size + 1));
    for (size_t i = 0; i < size; i++) s[i] = static_cast<char>(next() | 1);
    s[size] = 0;
    return s;
  }

 private:
  void* take(size_t size) {
    taken_.emplace_back(std::malloc(std::max<size_t>(size, 1)), &std::free);
    std::memset(taken_.back().get(), 0, std::max<size_t>(size, 1));
    return taken_.back().get();
  }

  fuzz::Bytes bytes_;
  std::vector<std::unique_ptr<void, void (*)(void*)>> taken_;
};

void expect_text(ingot_status status) {
  if (status == INGOT_INTERNAL || (status != INGOT_OK && ingot_error()[0] == 0)) {
    fprintf(stderr, "ERROR: status %d: %s\n", status, ingot_error());
    abort();
  }
}

}  // namespace

void fuzz::c_api(Bytes bytes) {
  static ingot_model* const models[] = {make_model(kModels[0]), make_model(kModels[1]), make_model(kModels[2])};
  Calls calls(bytes);
  ingot_state* state = nullptr;
  for (int n = 0; n < 16 && calls.more(); n++) {
    const uint8_t what = calls.next();
    const size_t which = what % 3;
    std::vector<ingot_tensor> in(kPorts[which][0]), out(kPorts[which][1]);
    auto count = [&](size_t right) { return what & 128 ? std::min<size_t>(calls.next(), right) : right; };
    switch (what / 3 % 8) {
      case 0:
      case 1:
        for (ingot_tensor& t : in) t = calls.tensor();
        for (ingot_tensor& t : out) t = calls.place();
        expect_text(ingot_run(models[which], in.data(), count(in.size()), out.data(), count(out.size())));
        break;
      case 2: {
        ingot_state_destroy(state);
        state = nullptr;
        const char* from[] = {calls.text(calls.next() % 8), "past"};
        const char* to[] = {calls.text(calls.next() % 8), "present"};
        const size_t pairs = calls.next() % 4;
        expect_text(pairs == 3 ? ingot_state_create(models[2], from + 1, to + 1, 1, &state)
                               : ingot_state_create(models[which], from, to, pairs, &state));
        break;
      }
      case 3:
        in.resize(1);
        out.resize(1);
        in[0] = calls.tensor();
        out[0] = calls.place();
        expect_text(ingot_state_run(state, in.data(), count(1), out.data(), count(1)));
        break;
      case 4:
        out[0] = calls.place();
        expect_text(ingot_state_get(state, calls.next() % 4, out.data()));
        break;
      case 5:
        in[0] = calls.tensor();
        expect_text(ingot_state_set(state, calls.next() % 4, in.data()));
        break;
      case 6:
        expect_text(ingot_state_reset(state));
        if (ingot_state_length(state) < -1) abort();
        break;
      default:
        ingot_state_destroy(state);
        state = nullptr;
        expect_text(ingot_run(nullptr, in.data(), in.size(), out.data(), out.size()));
    }
    for (ingot_tensor& t : out)
      if (!calls.owns(t.data)) ingot_release(&t);
  }
  ingot_state_destroy(state);
}

}  // namespace ingot
