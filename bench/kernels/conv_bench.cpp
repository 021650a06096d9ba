// All 53 convolutions of ResNet-50 at batch 1 in the order of the network, each layer with its own weights, so weights
// come from memory as in a real run. Specialised as the codegen does it: constant params, inlined epilogue.
#include <string>
#include <vector>

#include "../../src/kernels/conv.cpp"
#include "../../src/kernels/conv_winograd.cpp"
#include "../../src/kernels/gemm.cpp"
#include "measure.h"

using namespace ingot;
using namespace ingot::kernel;

enum EpilogueKind { kBias, kBiasRelu, kResidualRelu };

// The kind travels as the row stride of an operand that no epilogue uses: a constant in every specialisation.
extern "C" __attribute__((always_inline)) inline VF ingot_hook_epilogue(VF acc, void* const* extra,
                                                                        const EpilogueOperand* strides, int64_t row,
                                                                        int64_t col, int64_t, const ExprProgram*) {
  auto at = [&](int i) { return static_cast<const float*>(extra[i]) + row * strides[i].row_stride + col; };
  VF v = acc + load(at(0));
  if (strides[5].row_stride == kResidualRelu) v += load(at(1));
  return strides[5].row_stride == kBias ? v : v > 0.f ? v : VF(0.f);
}

static void set_epilogue(EpilogueOperand* extra, int64_t channels, int64_t kind) {
  extra[0] = {0, 1}, extra[1] = {channels, 1}, extra[5] = {kind, 0};
}

// A square convolution: Size is the output's side, padding keeps size / stride.
template <int In, int Out, int Size, int Kernel, int Stride, int Kind>
struct Layer {
  static constexpr bool kIsGemm = Kernel == 1 && Stride == 1;
  static constexpr int64_t kWinograd = Kernel == 3 && Stride == 1 ? winograd_best(In, Out, Size, Size) : 0;
  static __attribute__((always_inline)) inline ConvParams conv_params() {
    ConvParams p{};
    p.batch = p.groups = 1, p.in_channels = In, p.out_channels = Out;
    for (int i = 0; i < 3; i++) {
      bool flat = i == 0;
      p.in[i] = flat ? 1 : Size * Stride, p.out[i] = flat ? 1 : Size, p.kernel[i] = flat ? 1 : Kernel;
      p.stride[i] = flat ? 1 : Stride, p.dilation[i] = 1, p.pad[i] = flat ? 0 : Kernel / 2;
    }
    conv_choose(p, kLanes);
    p.extras = Kind == kResidualRelu ? 2 : 1;
    set_epilogue(p.extra, Out, Kind);
    return p;
  }
  static __attribute__((always_inline)) inline GemmParams gemm_params() {
    GemmParams p{};
    p.panel = best_panel(kLanes, Out), p.k_slice = gemm_k_slice(In), p.m_blocks = gemm_m_blocks(Size * Size);
    p.tile_rows = tallest_tile(Size * Size, tile_rows(kLanes, p.panel));
    p.b_packed = 1, p.m = Size * Size, p.n = Out, p.k = In, p.batch[0] = p.batch[1] = p.batch[2] = 1;
    p.a_row = In, p.a_col = 1, p.c_row = Out;
    p.extras = Kind == kResidualRelu ? 2 : 1;
    set_epilogue(p.extra, Out, Kind);
    return p;
  }
  static __attribute__((always_inline)) inline WinogradParams winograd_params() {
    WinogradParams p{};
    p.m = kWinograd, p.batch = 1, p.in_channels = In, p.out_channels = Out;
    for (int i = 0; i < 2; i++) p.in[i] = p.out[i] = Size, p.pad[i] = 1;
    winograd_choose(p, kLanes);
    p.extras = Kind == kResidualRelu ? 2 : 1;
    set_epilogue(p.extra, Out, Kind);
    return p;
  }
  static __attribute__((noinline)) void run(void** operands, void* scratch) {
    if constexpr (kIsGemm) {
      GemmParams p = gemm_params();
      KernelCall call{operands, reinterpret_cast<const int64_t*>(&p), nullptr, 0, gemm_units(p), scratch};
      [[clang::always_inline]] ingot_gemm_f32(&call);
    } else if constexpr (kWinograd != 0) {
      WinogradParams p = winograd_params();
      KernelCall call{operands, reinterpret_cast<const int64_t*>(&p), nullptr, 0, winograd_units(p), scratch};
      winograd_body(&call);
    } else {
      ConvParams p = conv_params();
      KernelCall call{operands, reinterpret_cast<const int64_t*>(&p), nullptr, 0, conv_units(p), scratch};
      conv_body(&call);
    }
  }
};

struct Step {
  std::string name;
  void (*run)(void** operands, void* scratch);
  double macs, best = 1e9;
  void* operands[5];
};
static std::vector<Step> steps;
static float* scratch = measure::floats(4 << 20, 1);

template <int In, int Out, int Size, int Kernel, int Stride, int Kind>
static void add(float* x, float* y, float* residual) {
  using L = Layer<In, Out, Size, Kernel, Stride, Kind>;
  size_t n = size_t(In) * Out * Kernel * Kernel;
  static unsigned seed = 1;
  char name[64];
  snprintf(name, sizeof name, "%dx%d/%d %d>%d @%d%s", Kernel, Kernel, Stride, In, Out, Size,
           Kind == kResidualRelu ? " +res" : "");
  constexpr size_t taps = L::kWinograd ? (L::kWinograd + 2) * (L::kWinograd + 2) : Kernel * Kernel;
  float *w = measure::floats((Out + 48) * In * taps, seed++, 0.05f), *bias = measure::floats(Out, seed++);
  steps.push_back({name, L::run, double(n) * Size * Size, 1e9, {x, w, y, bias, residual}});
}

static float* buffer[5];
template <int In, int Width, int Size, int Stride>
static void first_block() {  // Size: of the output
  add<In, Width, Size * Stride, 1, 1, kBiasRelu>(buffer[0], buffer[1], nullptr);
  add<Width, Width, Size, 3, Stride, kBiasRelu>(buffer[1], buffer[2], nullptr);
  add<In, 4 * Width, Size, 1, Stride, kBias>(buffer[0], buffer[4], nullptr);
  add<Width, 4 * Width, Size, 1, 1, kResidualRelu>(buffer[2], buffer[3], buffer[4]);
  std::swap(buffer[0], buffer[3]);
}
template <int Width, int Size>
static void block() {
  add<4 * Width, Width, Size, 1, 1, kBiasRelu>(buffer[0], buffer[1], nullptr);
  add<Width, Width, Size, 3, 1, kBiasRelu>(buffer[1], buffer[2], nullptr);
  add<Width, 4 * Width, Size, 1, 1, kResidualRelu>(buffer[2], buffer[3], buffer[0]);
  std::swap(buffer[0], buffer[3]);
}

static void build() {
  for (float*& b : buffer) b = measure::floats(112 * 112 * 64, 3);
  float* image = measure::floats(224 * 224 * 3, 4);
  add<3, 64, 112, 7, 2, kBiasRelu>(image, buffer[0], nullptr);
  first_block<64, 64, 56, 1>(), block<64, 56>(), block<64, 56>();
  first_block<256, 128, 28, 2>(), block<128, 28>(), block<128, 28>(), block<128, 28>();
  first_block<512, 256, 14, 2>();
  for (int i = 0; i < 5; i++) block<256, 14>();
  first_block<1024, 512, 7, 2>(), block<512, 7>(), block<512, 7>();
}

int main(int argc, char** argv) {
  build();
  double budget = argc > 1 ? atof(argv[1]) : 5, start = measure::cpu_seconds(), peak = 0;
  while (measure::cpu_seconds() - start < budget) {
    for (int i = 0; i < 3; i++) peak = std::max(peak, measure::fma_peak());
    for (Step& s : steps) {
      double t = measure::cpu_seconds();
      s.run(s.operands, scratch);
      s.best = std::min(s.best, measure::cpu_seconds() - t);
    }
  }
  double total = 0, macs = 0;
  std::vector<std::string> seen;
  for (Step& s : steps) {
    total += s.best, macs += s.macs;
    if (std::find(seen.begin(), seen.end(), s.name) != seen.end()) continue;
    seen.push_back(s.name);
    double seconds = 0, work = 0;
    int count = 0;
    for (Step& t : steps)
      if (t.name == s.name) seconds += t.best, work += t.macs, count++;
    printf("%-24s x%d %8.3f ms %5.1f %%\n", s.name.c_str(), count, seconds / count * 1e3,
           100 * work / seconds * 1e-9 / peak);
  }
  printf("all %zu convolutions, %.3f GMAC: %8.2f ms %5.1f %% of %.1f GMAC/s\n", steps.size(), macs * 1e-9, total * 1e3,
         100 * macs / total * 1e-9 / peak, peak);
}
