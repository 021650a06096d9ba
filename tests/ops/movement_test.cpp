// Operators that move data, run with the native kernels and compared with definitions element by element, over random
// shapes and every element size.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <random>

#include "ops/layout.h"
#include "runtime/evaluate.h"

namespace ingot {
namespace {

using Dims = std::vector<int64_t>;
using Attrs = std::map<std::string, Attribute>;

// Element i of a constant as a number, for types that only count up.
uint64_t element(const Constant& c, int64_t i) {
  const auto size = static_cast<size_t>(bits(c.dtype)) / 8;
  uint64_t v = 0;
  std::memcpy(&v, c.bytes.data() + static_cast<size_t>(i) * size, std::min<size_t>(size, 8));
  return v;
}

ConstantPtr counting(DType dtype, const Dims& dims) {
  std::byte* data = nullptr;
  ConstantPtr c = make_constant(dtype, dims, &data);
  const auto size = static_cast<size_t>(bits(dtype)) / 8;
  for (int64_t i = 0; i < c->elements(); i++) {
    const uint64_t v[2] = {static_cast<uint64_t>(i), static_cast<uint64_t>(i)};
    std::memcpy(data + static_cast<size_t>(i) * size, v, size);
  }
  return c;
}

ConstantPtr ints(const Dims& values) {
  return make_constant(DType::I64, {static_cast<int64_t>(values.size())}, values);
}

std::vector<ConstantPtr> run(const std::string& op, const std::vector<ConstantPtr>& inputs, const Attrs& attrs,
                             size_t outputs = 1) {
  Graph g;
  Node n;
  n.op = op;
  n.name = "node";
  n.attrs = attrs;
  for (size_t i = 0; i < inputs.size(); i++)
    n.inputs.push_back(inputs[i] ? g.add_constant("x" + std::to_string(i), inputs[i]) : kNoTensor);
  for (size_t i = 0; i < outputs; i++) n.outputs.push_back(g.add_tensor("y" + std::to_string(i)));
  std::vector<ConstantPtr> out;
  EXPECT_TRUE(evaluate(g, n, out, int64_t{1} << 30));
  return out;
}

// Calls f for every index of dims.
void for_each_index(const Dims& dims, const std::function<void(const Dims&)>& f) {
  Dims index(dims.size(), 0);
  const int64_t n = product_of(dims);
  for (int64_t i = 0; i < n; i++) {
    f(index);
    for (size_t d = dims.size(); d-- > 0;) {
      if (++index[d] < dims[d]) break;
      index[d] = 0;
    }
  }
}

int64_t flat(const Dims& index, const Dims& dims) {
  int64_t at = 0;
  for (size_t d = 0; d < dims.size(); d++) at = at * dims[d] + index[d];
  return at;
}

// out[i] must be element source(i) of the input, which counts up.
void expect_moved(const Constant& in, const Constant& out, const Dims& dims,
                  const std::function<int64_t(const Dims&)>& source) {
  ASSERT_EQ(out.dims, dims);
  for_each_index(dims, [&](const Dims& i) {
    ASSERT_EQ(element(out, flat(i, dims)), element(in, source(i))) << "at " << fmt::format("[{}]", fmt::join(i, ", "));
  });
}

class Movement : public ::testing::TestWithParam<DType> {
 protected:
  int64_t in(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  Dims dims(size_t rank, int64_t most) {
    Dims d(rank);
    for (int64_t& x : d) x = in(0, 9) == 0 ? 1 : in(1, most);
    return d;
  }
  std::mt19937 random_{7};
};

TEST_P(Movement, TransposeIsAPermutationOfIndices) {
  for (int round = 0; round < 60; round++) {
    const Dims shape = dims(static_cast<size_t>(in(1, 5)), round % 4 == 0 ? 40 : 6);
    Dims perm(shape.size());
    std::iota(perm.begin(), perm.end(), 0);
    std::shuffle(perm.begin(), perm.end(), random_);
    Dims out;
    for (int64_t p : perm) out.push_back(shape[static_cast<size_t>(p)]);
    if (product_of(shape) > 1 << 18) continue;
    const ConstantPtr x = counting(GetParam(), shape);
    expect_moved(*x, *run("Transpose", {x}, {{"perm", perm}})[0], out, [&](const Dims& i) {
      Dims from(i.size());
      for (size_t d = 0; d < i.size(); d++) from[static_cast<size_t>(perm[d])] = i[d];
      return flat(from, shape);
    });
  }
}

TEST_P(Movement, TransposeOfMatricesWithRaggedEdges) {
  for (const Dims& shape : {Dims{1, 65}, Dims{64, 64}, Dims{33, 130}, Dims{17, 3}, Dims{3, 1000}, Dims{129, 31}}) {
    const ConstantPtr x = counting(GetParam(), shape);
    expect_moved(*x, *run("Transpose", {x}, {})[0], {shape[1], shape[0]},
                 [&](const Dims& i) { return i[1] * shape[1] + i[0]; });
  }
}

TEST_P(Movement, SliceWalksForwardAndBackward) {
  for (int round = 0; round < 60; round++) {
    const Dims shape = dims(static_cast<size_t>(in(1, 4)), 9);
    Dims starts, ends, axes, steps, out, first;
    for (size_t d = 0; d < shape.size(); d++) {
      const int64_t step = in(0, 1) ? in(1, 3) : -in(1, 3), a = in(0, shape[d] - 1), b = in(0, shape[d] - 1);
      const int64_t low = std::min(a, b), high = std::max(a, b), length = (high - low) / std::abs(step) + 1;
      axes.push_back(static_cast<int64_t>(d) - (in(0, 1) ? static_cast<int64_t>(shape.size()) : 0));
      starts.push_back(step > 0 ? low : high);
      ends.push_back(step > 0 ? high + 1 : low == 0 ? INT64_MIN : low - 1);
      steps.push_back(step);
      first.push_back(starts.back());
      out.push_back(length);
    }
    const ConstantPtr x = counting(GetParam(), shape);
    expect_moved(*x, *run("Slice", {x, ints(starts), ints(ends), ints(axes), ints(steps)}, {})[0], out,
                 [&](const Dims& i) {
                   Dims from(i.size());
                   for (size_t d = 0; d < i.size(); d++) from[d] = first[d] + i[d] * steps[d];
                   return flat(from, shape);
                 });
  }
}

TEST_P(Movement, SplitAndConcatAreInverse) {
  for (int round = 0; round < 30; round++) {
    const Dims shape = dims(static_cast<size_t>(in(1, 4)), 12);
    const int64_t axis = in(0, static_cast<int64_t>(shape.size()) - 1), n = shape[static_cast<size_t>(axis)];
    Dims sizes;
    for (int64_t left = n; left > 0; left -= sizes.back()) sizes.push_back(in(in(0, 3) == 0 ? 0 : 1, left));
    const ConstantPtr x = counting(GetParam(), shape);
    const auto parts = run("Split", {x, ints(sizes)}, {{"axis", axis}}, sizes.size());
    const ConstantPtr whole = run("Concat", parts, {{"axis", axis}})[0];
    ASSERT_EQ(whole->dims, x->dims);
    ASSERT_TRUE(std::equal(whole->bytes.begin(), whole->bytes.end(), x->bytes.begin(), x->bytes.end()));
  }
}

TEST_P(Movement, ExpandAndTileRepeat) {
  for (int round = 0; round < 30; round++) {
    const Dims shape = dims(static_cast<size_t>(in(1, 4)), 5);
    Dims expanded = shape, repeats, tiled;
    for (size_t d = 0; d < shape.size(); d++) {
      if (shape[d] == 1) expanded[d] = in(1, 5);
      repeats.push_back(in(1, 3));
      tiled.push_back(shape[d] * repeats[d]);
    }
    const ConstantPtr x = counting(GetParam(), shape);
    auto wrapped = [&](const Dims& i) {
      Dims from(i.size());
      for (size_t d = 0; d < i.size(); d++) from[d] = i[d] % shape[d];
      return flat(from, shape);
    };
    expect_moved(*x, *run("Expand", {x, ints(expanded)}, {})[0], expanded, wrapped);
    expect_moved(*x, *run("Tile", {x, ints(repeats)}, {})[0], tiled, wrapped);
  }
}

TEST_P(Movement, PadModesAgreeWithTheirFormulas) {
  const std::map<std::string, std::function<int64_t(int64_t, int64_t)>> modes = {
      {"constant", [](int64_t j, int64_t n) { return j < 0 || j >= n ? -1 : j; }},
      {"edge", [](int64_t j, int64_t n) { return std::clamp<int64_t>(j, 0, n - 1); }},
      {"wrap", [](int64_t j, int64_t n) { return (j % n + n) % n; }},
      {"reflect", [](int64_t j, int64_t n) {
         while (n > 1 && (j < 0 || j >= n)) j = j < 0 ? -j : 2 * (n - 1) - j;
         return n == 1 ? 0 : j;
       }}};
  for (int round = 0; round < 60; round++) {
    const Dims shape = dims(static_cast<size_t>(in(1, 4)), 6);
    const auto& [mode, f] = *std::next(modes.begin(), round % 4);
    Dims before, after, out;
    for (int64_t n : shape) {
      before.push_back(in(0, 2) == 0 ? 0 : in(n > 1 ? -1 : 0, 4));
      after.push_back(in(0, 2) == 0 ? 0 : in(n > 2 ? -1 : 0, 4));
      out.push_back(n + before.back() + after.back());
    }
    Dims pads = before;
    pads.insert(pads.end(), after.begin(), after.end());
    const ConstantPtr x = counting(GetParam(), shape);
    const ConstantPtr y = run("Pad", {x, ints(pads)}, {{"mode", mode}})[0];
    ASSERT_EQ(y->dims, out);
    for_each_index(out, [&](const Dims& i) {
      Dims from(i.size());
      bool outside = false;
      for (size_t d = 0; d < i.size(); d++) {
        const int64_t cut = std::max<int64_t>(0, -before[d]), kept = shape[d] - cut - std::max<int64_t>(0, -after[d]);
        const int64_t j = f(i[d] - std::max<int64_t>(0, before[d]), kept);
        outside |= j < 0;
        from[d] = j + cut;
      }
      ASSERT_EQ(element(*y, flat(i, out)), outside ? 0 : element(*x, flat(from, shape))) << mode;
    });
  }
}

TEST_P(Movement, GatherReadsAlongAnAxis) {
  for (int round = 0; round < 30; round++) {
    const Dims shape = dims(static_cast<size_t>(in(1, 4)), 7);
    const int64_t axis = in(0, static_cast<int64_t>(shape.size()) - 1), n = shape[static_cast<size_t>(axis)];
    Dims indices(static_cast<size_t>(in(1, 5)));
    for (int64_t& i : indices) i = in(-n, n - 1);
    Dims out = shape;
    out[static_cast<size_t>(axis)] = static_cast<int64_t>(indices.size());
    const ConstantPtr x = counting(GetParam(), shape);
    expect_moved(*x, *run("Gather", {x, ints(indices)}, {{"axis", axis}})[0], out, [&](const Dims& i) {
      Dims from = i;
      const int64_t k = indices[static_cast<size_t>(i[static_cast<size_t>(axis)])];
      from[static_cast<size_t>(axis)] = k < 0 ? k + n : k;
      return flat(from, shape);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(ElementSizes, Movement,
                         ::testing::Values(DType::U8, DType::I16, DType::F32, DType::F64, DType::C128),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(Indices, OutOfRangeStopTheRun) {
  const ConstantPtr x = counting(DType::F32, {4, 3});
  EXPECT_THROW(run("Gather", {x, ints({0, 4})}, {}), Error);
  EXPECT_THROW(run("Gather", {x, ints({-5})}, {}), Error);
  EXPECT_THROW(run("GatherElements", {x, make_constant(DType::I64, {1, 3}, Dims{0, 4, 0})}, {}), Error);
  EXPECT_THROW(run("GatherND", {x, make_constant(DType::I64, {1, 2}, Dims{0, 3})}, {}), Error);
  EXPECT_THROW(run("ScatterND", {x, make_constant(DType::I64, {1, 2}, Dims{4, 0}), counting(DType::F32, {1})}, {}),
               Error);
  EXPECT_THROW(
      run("ScatterElements", {x, make_constant(DType::I64, {1, 1}, Dims{-5}), counting(DType::F32, {1, 1})}, {}),
      Error);
}

}  // namespace
}  // namespace ingot
