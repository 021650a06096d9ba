// Our own compute operators (epilogues, layouts, packed weights, fused reductions, attention), run with the native
// kernels and compared with their definitions in double precision. ONNX's node tests cover the standard ones.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "ops/layout.h"
#include "planner/pack_weights.h"
#include "runtime/evaluate.h"

namespace ingot {
namespace {

using Dims = std::vector<int64_t>;
using Attrs = std::map<std::string, Attribute>;

class Compute : public ::testing::Test {
 protected:
  ConstantPtr random(const Dims& dims) {
    std::vector<float> v(static_cast<size_t>(product_of(dims)));
    std::uniform_real_distribution<float> d(-1, 1);
    for (float& x : v) x = d(random_);
    return make_constant(DType::F32, dims, v);
  }
  int64_t in(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  std::mt19937 random_{11};
};

Graph graph_of(const std::string& op, const std::string& domain, const std::vector<ConstantPtr>& inputs,
               const Attrs& attrs) {
  Graph g;
  Node n;
  n.op = op;
  n.domain = domain;
  n.name = "node";
  n.attrs = attrs;
  for (size_t i = 0; i < inputs.size(); i++)
    n.inputs.push_back(inputs[i] ? g.add_constant("x" + std::to_string(i), inputs[i]) : kNoTensor);
  n.outputs = {g.add_tensor("y")};
  g.outputs = n.outputs;
  g.nodes.push_back(n);
  return g;
}

ConstantPtr run(const Graph& g) {
  std::vector<ConstantPtr> out;
  EXPECT_TRUE(evaluate(g, g.nodes[0], out, int64_t{1} << 30));
  return out.at(0);
}
ConstantPtr run(const std::string& op, const std::string& domain, const std::vector<ConstantPtr>& inputs,
                const Attrs& attrs) {
  return run(graph_of(op, domain, inputs, attrs));
}

// y[i] must be f(index of i).
void expect_elements(const Constant& y, const Dims& dims, const std::function<double(const Dims&)>& f) {
  ASSERT_EQ(y.dims, dims);
  Dims index(dims.size(), 0);
  for (float v : y.as<float>()) {
    const double want = f(index);
    ASSERT_NEAR(v, want, 2e-5 * (1 + std::abs(want))) << fmt::format("at [{}]", fmt::join(index, ", "));
    for (size_t d = dims.size(); d-- > 0;) {
      if (++index[d] < dims[d]) break;
      index[d] = 0;
    }
  }
}

// The element of a constant at an index of the space it is broadcast to.
double at(const Constant& c, const Dims& index) {
  int64_t offset = 0;
  for (size_t d = 0; d < c.dims.size(); d++) {
    const int64_t i = index[index.size() - c.dims.size() + d];
    offset = offset * c.dims[d] + (c.dims[d] == 1 ? 0 : i);
  }
  return c.as<float>()[static_cast<size_t>(offset)];
}

TEST_F(Compute, MatMulHasNumpyBatchesTransposesAndEpilogues) {
  for (int round = 0; round < 40; round++) {
    const int64_t b0 = in(1, 3), b1 = in(1, 3), m = in(1, 40), n = in(1, 70), k = in(0, 50);
    const bool trans_a = in(0, 1), trans_b = in(0, 1), flat = in(0, 1);
    const Dims batch_b = flat ? Dims{} : Dims{in(0, 1) ? b0 : 1, in(0, 1) ? b1 : 1};
    Dims da = {b0, b1, trans_a ? k : m, trans_a ? m : k}, db = batch_b;
    db.insert(db.end(), {trans_b ? n : k, trans_b ? k : n});
    const auto a = random(da), b = random(db), bias = random({n});
    const std::vector<Dims> shapes = {{b0, b1, m, n}, {m, n}, {m, 1}, {1, 1}, {b0, 1, 1, n}};
    const auto extra = random(shapes[static_cast<size_t>(in(0, 4))]);
    Graph g = graph_of("MatMul", "ingot", {a, b, bias, extra},
                       {{"transA", int64_t{trans_a}},
                        {"transB", int64_t{trans_b}},
                        {"epilogue", std::string("mul(add(x0, x1), x2)")}});
    const auto want = [&](const Dims& i) {
      double sum = 0;
      for (int64_t t = 0; t < k; t++) {
        const Dims ia = {i[0], i[1], trans_a ? t : i[2], trans_a ? i[2] : t},
                   ib = {i[0], i[1], trans_b ? i[3] : t, trans_b ? t : i[3]};
        sum += at(*a, ia) * at(*b, ib);
      }
      return (sum + at(*bias, i)) * at(*extra, i);
    };
    expect_elements(*run(g), {b0, b1, m, n}, want);
    pack_weights(g);
    ASSERT_EQ(g.nodes[0].has("packed"), flat && k > 0);
    expect_elements(*run(g), {b0, b1, m, n}, want);
  }
}

TEST_F(Compute, GemmScalesAndBroadcastsC) {
  for (const Dims& c : {Dims{}, Dims{1}, Dims{33}, Dims{7, 1}, Dims{1, 33}, Dims{7, 33}}) {
    const auto a = random({5, 7}), b = random({33, 5}), c_data = random(c);
    const auto y = run("Gemm", "", {a, b, c_data},
                       {{"transA", int64_t{1}}, {"transB", int64_t{1}}, {"alpha", 0.5f}, {"beta", 2.f}});
    expect_elements(*y, {7, 33}, [&](const Dims& i) {
      double sum = 0;
      for (int64_t t = 0; t < 5; t++) sum += at(*a, {t, i[0]}) * at(*b, {i[1], t});
      return 0.5 * sum + 2 * at(*c_data, i);
    });
  }
}

struct ConvCase {
  int64_t groups, group_in, group_out, kernel, stride, dilation, pad;
};

// Channels last and first, weights packed and not, with a bias over channels and a residual, are one convolution.
TEST_F(Compute, ConvIsTheSameInEveryLayout) {
  for (const ConvCase& c : {ConvCase{1, 5, 19, 3, 1, 1, 1},
                            {1, 8, 16, 1, 1, 1, 0},
                            {1, 3, 8, 5, 2, 1, 2},
                            {6, 1, 1, 3, 1, 2, 2},
                            {2, 4, 17, 3, 2, 1, 0},
                            {1, 4, 4, 1, 2, 1, 0},
                            {4, 1, 2, 3, 1, 1, 1}}) {
    const int64_t h = 9, w = 11, channels = c.groups * c.group_in, out = c.groups * c.group_out;
    const auto size = [&](int64_t s) { return (s + 2 * c.pad - (c.kernel - 1) * c.dilation - 1) / c.stride + 1; };
    const int64_t oh = size(h), ow = size(w);
    const auto x = random({2, h, w, channels}), weights = random({out, c.group_in, c.kernel, c.kernel}),
               bias = random({out});
    const auto residual = random({2, oh, ow, out});
    const auto want = [&](int64_t n, int64_t i, int64_t j, int64_t o) {
      double sum = at(*bias, {o});
      for (int64_t k = 0; k < c.group_in; k++)
        for (int64_t s = 0; s < c.kernel; s++)
          for (int64_t t = 0; t < c.kernel; t++) {
            const int64_t y = i * c.stride + s * c.dilation - c.pad, z = j * c.stride + t * c.dilation - c.pad;
            if (y < 0 || y >= h || z < 0 || z >= w) continue;
            sum += at(*x, {n, y, z, o / c.group_out * c.group_in + k}) * at(*weights, {o, k, s, t});
          }
      return std::max(0.0, sum + at(*residual, {n, i, j, o}));
    };
    Attrs attrs = {{"group", c.groups},
                   {"strides", Dims{c.stride, c.stride}},
                   {"dilations", Dims{c.dilation, c.dilation}},
                   {"pads", Dims(4, c.pad)},
                   {"epilogue", std::string("relu(add(x0, x1))")},
                   {"channels_last", int64_t{1}}};
    Graph g = graph_of("Conv", "ingot", {x, weights, bias, residual}, attrs);
    const auto last = [&](const Dims& i) { return want(i[0], i[1], i[2], i[3]); };
    expect_elements(*run(g), {2, oh, ow, out}, last);
    pack_weights(g);
    ASSERT_TRUE(g.nodes[0].has("packed"));
    expect_elements(*run(g), {2, oh, ow, out}, last);

    attrs["channels_last"] = int64_t{0};
    const Attrs to_first = {{"perm", Dims{0, 3, 1, 2}}};
    Graph first = graph_of(
        "Conv", "ingot",
        {run("Transpose", "", {x}, to_first), weights, bias, run("Transpose", "", {residual}, to_first)}, attrs);
    const auto first_want = [&](const Dims& i) { return want(i[0], i[2], i[3], i[1]); };
    expect_elements(*run(first), {2, out, oh, ow}, first_want);
    pack_weights(first);
    expect_elements(*run(first), {2, out, oh, ow}, first_want);
  }
}

TEST_F(Compute, ReduceTakesExpressionsOverBroadcastOperands) {
  for (const std::string kind : {"sum", "mean", "max", "min", "prod"})
    for (const Dims& axes : {Dims{2}, Dims{0, 2}, Dims{1}, Dims{0}, Dims{0, 1, 2}}) {
      const int64_t n0 = in(1, 5), n1 = in(1, 300), n2 = in(1, 40);
      const auto x = random({n0, n1, n2}), y = random({n1, 1});
      const auto z = run("Reduce", "ingot", {x, y},
                         {{"kind", kind},
                          {"axes", axes},
                          {"keepdims", int64_t{1}},
                          {"pre", std::string("add(abs(mul(x0, x1)), 0.5:f32)")},
                          {"post", std::string("sqrt(x0)")},
                          {"dtypes", std::vector<std::string>{"f32"}}});
      Dims out = {n0, n1, n2};
      for (int64_t a : axes) out[static_cast<size_t>(a)] = 1;
      expect_elements(*z, out, [&](const Dims& i) {
        double r = kind == "prod" ? 1 : kind == "max" ? -INFINITY : kind == "min" ? INFINITY : 0;
        int64_t count = 0;
        for (int64_t a = out[0] == 1 ? 0 : i[0]; a < (out[0] == 1 ? n0 : i[0] + 1); a++)
          for (int64_t b = out[1] == 1 ? 0 : i[1]; b < (out[1] == 1 ? n1 : i[1] + 1); b++)
            for (int64_t c = out[2] == 1 ? 0 : i[2]; c < (out[2] == 1 ? n2 : i[2] + 1); c++, count++) {
              const double v = std::abs(at(*x, {a, b, c}) * at(*y, {a, b, c})) + 0.5;
              r = kind == "prod" ? r * v : kind == "max" ? std::max(r, v) : kind == "min" ? std::min(r, v) : r + v;
            }
        return std::sqrt(kind == "mean" ? r / static_cast<double>(count) : r);
      });
    }
}

// A float sum of many elements is as good as one in double.
TEST_F(Compute, SumsDoNotDrift) {
  std::vector<float> v(3 << 20, 0.1f);
  const double want = 0.1f * static_cast<double>(v.size());
  for (const Dims& dims : {Dims{static_cast<int64_t>(v.size()), 1}, Dims{static_cast<int64_t>(v.size()) / 3, 3}}) {
    const auto y =
        run("ReduceSum", "", {make_constant(DType::F32, dims, v), make_constant(DType::I64, {1}, Dims{0})}, {});
    for (float got : y->as<float>()) EXPECT_NEAR(got * static_cast<double>(dims[1]), want, want * 1e-6);
  }
}

TEST_F(Compute, AttentionReadsEveryLayout) {
  for (const auto& [lq, lk, lv, lo] : {std::array<std::string, 4>{"bhsd", "bhsd", "bhsd", "bhsd"},
                                       {"bshd", "bshd", "bshd", "bshd"},
                                       {"bhsd", "bhds", "bshd", "bshd"}}) {
    const std::map<char, int64_t> q_size = {{'b', 2}, {'h', 4}, {'s', 5}, {'d', 8}},
                                  kv_size = {{'b', 2}, {'h', 2}, {'s', 7}, {'d', 8}};
    const auto dims = [](const std::string& l, const std::map<char, int64_t>& size) {
      Dims d;
      for (char c : l) d.push_back(size.at(c));
      return d;
    };
    const auto place = [](const std::string& l, int64_t b, int64_t h, int64_t s, int64_t d) {
      Dims i;
      for (char c : l) i.push_back(c == 'b' ? b : c == 'h' ? h : c == 's' ? s : d);
      return i;
    };
    const auto q = random(dims(lq, q_size)), k = random(dims(lk, kv_size)), v = random(dims(lv, kv_size)),
               mask = random({2, 1, 5, 7});
    const auto y = run("Attention", "ingot", {q, k, v, mask},
                       {{"scale", 0.3f}, {"layout_q", lq}, {"layout_k", lk}, {"layout_v", lv}, {"layout_out", lo}});
    const std::string layout = lo;
    expect_elements(*y, dims(lo, q_size), [&](const Dims& i) {
      const auto axis = [&](char c) { return i[layout.find(c)]; };
      const int64_t b = axis('b'), h = axis('h'), s = axis('s');
      double sum = 0, result = 0;
      for (int64_t j = 0; j < 7; j++) {
        double score = 0;
        for (int64_t d = 0; d < 8; d++) score += at(*q, place(lq, b, h, s, d)) * at(*k, place(lk, b, h / 2, j, d));
        const double e = std::exp(0.3 * score + at(*mask, {b, 0, s, j}));
        sum += e;
        result += e * at(*v, place(lv, b, h / 2, j, axis('d')));
      }
      return result / sum;
    });
  }
}

TEST_F(Compute, ErrorsNameBothSides) {
  const auto message = [&](const std::string& op, const std::vector<ConstantPtr>& inputs,
                           const Attrs& attrs) -> std::string {
    try {
      run(op, "", inputs, attrs);
    } catch (const Error& e) {
      return e.message();
    }
    return "no error";
  };
  EXPECT_EQ(message("MatMul", {random({2, 3}), random({4, 5})}, {}),
            "MatMul 'node': A [2, 3] and B [4, 5] do not fit: the inner dims are 3 and 4");
  EXPECT_EQ(message("Add", {random({2, 3}), random({4})}, {}),
            "Add 'node': shapes [2, 3] and [4] do not broadcast: 3 against 4");
  EXPECT_EQ(message("Conv", {random({1, 4, 5, 5}), random({2, 3, 3, 3})}, {}),
            "Conv 'node': X [1, 4, 5, 5] has 4 channels, W [2, 3, 3, 3] takes 3 in each of 1 groups");
}

}  // namespace
}  // namespace ingot
