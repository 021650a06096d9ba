// ingot.Lookup (kernels/lookup.h): LabelEncoder of numbers; the categories of OneHotEncoder.
#include "kernels/lookup.h"

#include <cstring>
#include <unordered_map>

#include "ops/host.h"
#include "ops/layout.h"

namespace ingot {
namespace {

void infer(InferContext& ctx) {
  ctx.set_dtype(0, ctx.dtype(2));
  const DType x = ctx.dtype(0), keys = ctx.dtype(1);
  if (x == DType::String || keys == DType::String || ctx.dtype(2) == DType::String) {
    ctx.require((x == DType::String) == (keys == DType::String), "looks {} up in keys of {}", name(x), name(keys));
    return ctx.set_shape(0, ctx.shape(0));
  }
  ctx.require((is_integer(x) && bits(x) >= 8) || (is_float(x) && bits(x) >= 16), "x is {}, expected numbers", name(x));
  ctx.require(keys == DType::I64 || keys == DType::F64, "the keys are {}, expected i64 or f64", name(keys));
  const Shape &k = ctx.shape(1), &v = ctx.shape(2);
  ctx.require(k.size() == 1 && v.size() == 1 && v[0] == k[0] + 1, "the keys are {} and the values {}", str(k), str(v));
  ctx.set_shape(0, ctx.shape(0));
}

void lower(LowerContext& ctx) {
  LookupParams p{};
  p.x_type = static_cast<int64_t>(ctx.in(0).dtype);
  p.integer_keys = ctx.in(1).dtype == DType::I64;
  p.value_bytes = element_bytes(ctx, ctx.in(2).dtype);
  p.strict = ctx.node.get_int("strict", 0) != 0;
  p.keys = ctx.dims(1)[0];
  p.count = product_of(ctx.dims(0));
  Step& s = ctx.step(ingot_lookup_kernel);
  s.operands = {ctx.input(0), ctx.input(1), ctx.input(2), ctx.output(0)};
  s.params = params_of(p);
  s.units = (p.count + kLookupChunk - 1) / kLookupChunk;
}

// Keys or values are strings: the pool's numbers stand for them.
void run(HostContext& ctx) {
  const Constant &x = *ctx.tensor(0), &keys = *ctx.tensor(1), &values = *ctx.tensor(2);
  const int64_t width = element_bytes(values);
  auto texts = [](const Constant& c) {
    std::vector<std::string> out;
    if (c.dtype == DType::F32)
      for (float v : c.as<float>()) out.push_back(fmt::format("{}", v));
    else if (c.dtype == DType::F64)
      for (double v : c.as<double>()) out.push_back(fmt::format("{}", v));
    else if (c.dtype == DType::String)
      for (int64_t v : c.as<int64_t>()) out.push_back(std::to_string(v));
    else
      for (int64_t v : integer_elements(c)) out.push_back(std::to_string(v));
    return out;
  };
  std::unordered_map<std::string, int64_t> place;
  for (const std::string& key : texts(keys)) place.emplace(key, std::ssize(place));
  if (std::ssize(place) != keys.elements()) ctx.fail("a key stands twice in the list");
  const std::vector<std::string> wanted = texts(x);
  const bool strict = ctx.node.get_int("strict", 0) != 0;
  std::byte* to = nullptr;
  ConstantPtr out = make_constant(values.dtype, x.dims, &to);
  for (int64_t i = 0; i < x.elements(); i++) {
    const auto it = place.find(wanted[static_cast<size_t>(i)]);
    if (strict && it == place.end()) ctx.fail("a value is none of the keys");
    const int64_t at = it == place.end() ? keys.elements() : it->second;
    std::memcpy(to + i * width, values.bytes.data() + at * width, static_cast<size_t>(width));
  }
  ctx.set(0, out);
}

}  // namespace

void register_lookup(OpRegistry& r) { r.add({"Lookup", "ingot", 3, 3, 1, 1, infer, lower, nullptr, run}); }

}  // namespace ingot
