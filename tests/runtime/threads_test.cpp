// What may be called by many threads at once, called by many threads at once. It looks at results, which have to be
// those of one thread alone, to the last bit; `make tsan` looks at the rest.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <thread>

#include "base/stop.h"
#include "base/threads.h"
#include "compiler/cache.h"
#include "compiler/compiler.h"
#include "compiler/library.h"
#include "graph_text.h"
#include "models.h"
#include "runtime/output_memory.h"
#include "runtime/state.h"
#include "runtime/thread_pool.h"

namespace ingot {
namespace {

using testing::Folder;
using Bytes = std::vector<std::vector<std::byte>>;  // of a run's outputs

constexpr int kThreads = 4;

// work(0) ... work(kThreads - 1), all at the same time. What one of them throws fails the test.
template <class Work>
void at_once(const Work& work) {
  std::barrier start(kThreads);
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; t++)
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      try {
        work(t);
      } catch (const std::exception& e) {
        ADD_FAILURE() << "thread " << t << ": " << e.what();
      }
    });
}

std::shared_ptr<Graph> model(const std::vector<std::string>& inputs, const std::vector<std::string>& weights,
                             const std::string& nodes) {
  auto g = std::make_shared<Graph>();
  g->name = "model";
  for (const auto& text : inputs) test::declare_input(*g, text);
  for (const auto& text : weights) test::declare_weight(*g, text);
  test::parse_nodes(*g, nodes);
  prepare_graph(*g, {});
  return g;
}

// A product with an epilogue, a loop of element-wise operators and one along an axis: all are specialised.
std::shared_ptr<Graph> layer() {
  return model({"x: f32[n, 48]"}, {"w: f32[48, 64]", "b: f32[64]"},
               "g = Gelu(Add(MatMul(x, w), b))\n"
               "y = Softmax(Mul(g, Sigmoid(Sub(g, 3.0)))) {axis: -1}");
}

ConstantPtr ramp(const std::vector<int64_t>& dims, float first = 0) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  std::vector<float> v(static_cast<size_t>(n));
  for (size_t i = 0; i < v.size(); i++) v[i] = first + 0.01f * static_cast<float>(i % 97);
  return make_constant(DType::F32, dims, v);
}

// Calls run(views, allocate) for a session, a library or a state.
template <class Runner>
Bytes run(Runner& runner, const std::vector<ConstantPtr>& inputs) {
  std::vector<TensorView> views;
  for (const ConstantPtr& c : inputs) views.push_back(view_of(c));
  Bytes outputs;
  runner.run(views, [&](size_t, DType type, const std::vector<int64_t>& dims) {
    int64_t n = 1;
    for (int64_t d : dims) n *= d;
    return outputs.emplace_back(static_cast<size_t>(byte_size(type, n)) + 1).data();
  });
  return outputs;
}

std::unique_ptr<Session> native_session(const std::shared_ptr<Graph>& graph) {
  SessionOptions one;
  one.threads = 1;
  CompileOptions options;
  options.opt_level = 1;
  return make_session(graph, options, one);
}

std::unique_ptr<Session> session(const std::shared_ptr<Graph>& graph, const Folder& cache, bool wait = false) {
  SessionOptions two;
  two.threads = 2;
  two.limits.plans = 2;
  CompileOptions options;
  options.cache_dir = cache / "cache";
  options.wait = wait;
  return make_session(graph, options, two);
}

TEST(ThreadsAtOnce, ThePoolDoesEachUnitOnce) {
  at_once([](int t) {
    for (int round = 0; round < 200; round++) {
      std::vector<int> done(static_cast<size_t>(1 + (round * 37 + t) % 500));
      const auto count = [](void* to, const PieceOfWork& piece) {
        for (int64_t i = piece.begin; i < piece.end; i++) static_cast<int*>(to)[i]++;
      };
      parallel_for(static_cast<int64_t>(done.size()), 1 + round % 7, 2 + (round + t) % 3, count, done.data());
      ASSERT_EQ(std::count(done.begin(), done.end(), 1), static_cast<int64_t>(done.size()));
    }
  });
}

TEST(ThreadsAtOnce, WorkIsSharedOutOnceAndItsErrorThrown) {
  at_once([](int t) {
    std::vector<int> done(100);
    share_out(done.size(), 3, [&](size_t i) { done[i]++; });
    EXPECT_EQ(std::count(done.begin(), done.end(), 1), 100);
    EXPECT_THROW(share_out(100, 3,
                           [&](size_t i) {
                             if (i == static_cast<size_t>(t)) invalid_input("{}", i);
                           }),
                 Error);
  });
}

TEST(ThreadsAtOnce, ResultsFindMemoryAgain) {
  at_once([](int t) {
    for (int round = 0; round < 100; round++) {
      const size_t bytes = size_t{1} << (10 + (round + t) % 10);
      auto* memory = static_cast<char*>(take_output(bytes));
      std::memset(memory, t, bytes);
      ASSERT_EQ(memory[bytes - 1], t);
      give_back_output(memory);
    }
  });
}

void count_units() {
  std::vector<int> done(300);
  const auto count = [](void* to, const PieceOfWork& piece) {
    for (int64_t i = piece.begin; i < piece.end; i++) static_cast<int*>(to)[i]++;
  };
  parallel_for(static_cast<int64_t>(done.size()), 1, 2, count, done.data());
  if (std::count(done.begin(), done.end(), 1) != static_cast<int64_t>(done.size())) _exit(2);
}

// The child of a fork is not concerned by what threads that it does not have were about to do.
TEST(ThreadsAtOnce, AChildHasAPoolAndMemoryOfItsOwn) {
  std::atomic<bool> end{false};
  std::vector<std::jthread> busy;
  busy.emplace_back([&] {
    while (!end) count_units();
  });
  busy.emplace_back([&] {
    while (!end) give_back_output(take_output(size_t{1} << 20));
  });
  for (int n = 0; n < 100; n++) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      at_once([](int) {
        give_back_output(take_output(size_t{1} << 20));
        count_units();
      });
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << "child " << n;
    if (status != 0) break;
  }
  end = true;
}

TEST(ThreadsAtOnce, ASessionRunsManyShapesWhileItsKernelsAreCompiled) {
  const Folder folder;
  const auto graph = layer();
  const auto alone = native_session(graph);
  std::vector<ConstantPtr> inputs;
  std::vector<Bytes> expected;
  for (int64_t n : {1, 3, 8, 17, 40}) {
    inputs.push_back(ramp({n, 48}));
    expected.push_back(run(*alone, {inputs.back()}));
  }
  const int64_t before = kernels_compiled();
  const auto shared = session(graph, folder);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::atomic<int> rounds{0};
  at_once([&](int t) {
    for (int round = 0; round < 50 || (kernels_compiled() < before + 3 && std::chrono::steady_clock::now() < end);
         round++) {
      const size_t i = static_cast<size_t>(round + t) % inputs.size();
      ASSERT_EQ(run(*shared, {inputs[i]}), expected[i]);
      rounds++;
      if (round >= 50) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the compiler has low priority
    }
  });
  EXPECT_GE(rounds, kThreads * 50);
  EXPECT_GE(kernels_compiled(), before + 3);
}

TEST(ThreadsAtOnce, SessionsComeAndGoWhileTheirKernelsAreCompiled) {
  const Folder folder;
  at_once([&](int t) {
    for (int round = 0; round < 4; round++) {
      // Kernels of its own, and one that they share.
      const auto graph = model({"x: f32[n, 64]"}, {},
                               fmt::format("y = LeakyRelu(Sin(x)) {{alpha: 0.{}5}}\nz = Tanh(Exp(x))\nu = Concat(y, z) "
                                           "{{axis: 0}}",
                                           1 + t));
      const ConstantPtr x = ramp({16 + round, 64});
      const auto own = session(graph, folder);
      const Bytes expected = run(*native_session(graph), {x});
      for (int i = 0; i < 3; i++) ASSERT_EQ(run(*own, {x}), expected);
    }
  });
}

TEST(ThreadsAtOnce, SessionsThatWaitShareTheDiskCache) {
  const Folder folder;
  const auto graph = layer();
  const ConstantPtr x = ramp({9, 48});
  const Bytes expected = run(*native_session(graph), {x});
  at_once([&](int) { ASSERT_EQ(run(*session(graph, folder, true), {x}), expected); });
}

TEST(ThreadsAtOnce, RunsAreCancelledAndTheSessionGoesOn) {
  const Folder folder;
  const auto graph = layer();
  const auto shared = session(graph, folder);
  const ConstantPtr x = ramp({200, 48});
  const Bytes expected = run(*native_session(graph), {x});
  int32_t word = 0;
  at_once([&](int t) {
    if (t == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      __atomic_store_n(&word, 1, __ATOMIC_RELAXED);
      return;
    }
    Stop stop;
    if (t == 1)
      stop.after(0.05);
    else
      stop.when_set(&word);
    const StopScope scope(stop);
    testing::error_of(t == 1 ? ErrorKind::Deadline : ErrorKind::Cancelled, [&] {
      while (true) ASSERT_EQ(run(*shared, {x}), expected);
    });
  });
  at_once([&](int) { ASSERT_EQ(run(*shared, {x}), expected); });
}

TEST(ThreadsAtOnce, PlansThatDependOnData) {
  const Folder folder;
  const auto graph = model({"x: f32[1, k]", "n: i64[2]"}, {}, "y = Expand(Relu(x), Mul(n, [3, 1]))");
  const auto alone = native_session(graph), shared = session(graph, folder);
  std::vector<std::vector<ConstantPtr>> inputs;
  std::vector<Bytes> expected;
  for (int64_t n = 1; n < 24; n++) {
    inputs.push_back({ramp({1, 5 + n % 2}), make_constant(DType::I64, {2}, std::vector<int64_t>{n, 1})});
    expected.push_back(run(*alone, inputs.back()));
  }
  at_once([&](int t) {
    for (size_t round = 0; round < 60; round++) {
      const size_t i = (round + static_cast<size_t>(t)) % inputs.size();
      ASSERT_EQ(run(*shared, inputs[i]), expected[i]);
    }
  });
}

TEST(ThreadsAtOnce, DimsTurnOutToBeIndependent) {
  const auto made = [](const CompileOptions& options) {
    auto g = std::make_shared<Graph>();
    for (const char* text : {"a: f32[n, 2]", "b: f32[n, 2]"}) test::declare_input(*g, text);
    test::parse_nodes(*g, "y = Concat(a, b) {axis: 0}");
    if (options.independent_dims) untie_dims(*g);
    prepare_graph(*g, options);
    return g;
  };
  CompileOptions options;
  options.opt_level = 1;
  const auto shared = make_session(made(options), options, {}, made);
  at_once([&](int t) {
    const int64_t rows = 2 + t % 2;
    const Bytes y = run(*shared, {ramp({rows, 2}), ramp({5, 2})});
    ASSERT_EQ(y.at(0).size(), static_cast<size_t>(rows + 5) * 8 + 1);
  });
}

TEST(ThreadsAtOnce, StatesAndWhatTheyCount) {
  const auto graph = model({"past: f32[1, p, 4]", "x: f32[1, rows, 4]"}, {},
                           "present = Concat(past, x) {axis: 1}\n"
                           "s = ReduceSum(present) {keepdims: 0}");
  auto with_both = std::make_shared<Graph>(*graph);
  with_both->outputs = {graph->find_tensor("present"), graph->outputs[0]};
  const auto shared = native_session(with_both);
  const auto common = bind_state(*shared, {{"past", "present"}});
  constexpr int kRuns = 30;
  const ConstantPtr x = make_constant(DType::F32, {1, 2, 4}, std::vector<float>(8, 1.f));
  at_once([&](int) {
    const auto own = bind_state(*shared, {{"past", "present"}});
    float sum = 0;
    for (int i = 1; i <= kRuns; i++) {
      run(*common, {x});
      common->length();
      const Bytes s = run(*own, {x});
      std::memcpy(&sum, s.at(0).data(), sizeof sum);
      ASSERT_EQ(sum, 8.f * static_cast<float>(i));
    }
    ASSERT_EQ(own->length(), 2 * kRuns);
  });
  EXPECT_EQ(common->length(), 2 * kRuns * kThreads);
  at_once([&](int t) {
    if (t % 2) return common->reset();
    run(*common, {x});
  });
}

// y = x, doubled three times in a loop.
onnx::ModelProto loop() {
  testing::Model m(21);
  testing::add_input(m.g(), "x", {6});
  const int64_t three = 3;
  testing::add_tensor(m.g(), "m", 7, {}).set_raw_data(std::string(reinterpret_cast<const char*>(&three), 8));
  testing::set_raw(testing::add_tensor(m.g(), "go", 9, {}), 1);
  onnx::NodeProto& node = testing::add_node(m.g(), "Loop", {"m", "go", "x"}, {"y"}, "loop");
  onnx::GraphProto& body = testing::set_graph(node, "body");
  body.set_name("body");
  testing::set_type(*body.add_input(), "i", {}, 7);
  testing::set_type(*body.add_input(), "go_in", {}, 9);
  testing::set_type(*body.add_input(), "v", {6});
  testing::add_node(body, "Identity", {"go_in"}, {"go_out"}, "again");
  testing::add_node(body, "Add", {"v", "v"}, {"w"}, "double");
  testing::set_type(*body.add_output(), "go_out", {}, 9);
  testing::set_type(*body.add_output(), "w", {6});
  testing::set_type(*m.g().add_output(), "y", {6});
  return m.proto;
}

TEST(ThreadsAtOnce, ModelsAreReadOptimisedAndRunInLoops) {
  const Folder folder;
  const std::string path = folder.write("loop.onnx", loop().SerializeAsString());
  const ConstantPtr x = ramp({6}, 1);
  std::vector<float> doubled;
  for (float v : x->as<float>()) doubled.push_back(v * 8);
  CompileOptions options;
  options.cache_dir = folder / "cache";
  const std::shared_ptr<Session> shared = make_session(prepare_model(path, options), options, {});
  at_once([&](int) {
    const std::shared_ptr<Session> own = make_session(prepare_model(path, options), options, {});
    for (int i = 0; i < 10; i++)
      for (const auto& s : {own, shared}) {
        const Bytes y = run(*s, {x});
        ASSERT_EQ(std::memcmp(y.at(0).data(), doubled.data(), doubled.size() * sizeof(float)), 0);
      }
  });
}

TEST(ThreadsAtOnce, SequencesPassBetweenHostOperators) {
  const auto graph = model({"x: f32[n, 3]"}, {},
                           "q = SequenceConstruct(x, Relu(x))\n"
                           "y = ConcatFromSequence(SequenceInsert(q, x)) {axis: 0}");
  const auto shared = native_session(graph);
  const ConstantPtr x = ramp({4, 3});
  const Bytes expected = run(*shared, {x});
  at_once([&](int) {
    for (int i = 0; i < 20; i++) ASSERT_EQ(run(*shared, {x}), expected);
  });
}

TEST(ThreadsAtOnce, AProfileTakesTheStepsOfAll) {
  const Folder folder;
  const auto graph = layer();
  const std::string path = folder / "trace.json";
  {
    SessionOptions options;
    options.profile = path;
    CompileOptions native;
    native.opt_level = 1;
    const auto shared = make_session(graph, native, options);
    const ConstantPtr x = ramp({5, 48});
    at_once([&](int) { run(*shared, {x}); });
  }
  const std::string trace = testing::read_file(path);
  size_t events = 0;
  for (size_t at = 0; (at = trace.find("\"ph\"", at)) != std::string::npos; at++) events++;
  EXPECT_GE(events, size_t{kThreads});
  EXPECT_EQ(events % kThreads, 0u);
}

TEST(ThreadsAtOnce, ALibraryIsWrittenToOnePathAndOpened) {
  const Folder folder;
  const auto graph = layer();
  const std::string path = folder / "layer.so";
  CompileOptions options;
  options.cache_dir = folder / "cache";
  const ConstantPtr x = ramp({9, 48});
  const Bytes expected = run(*native_session(graph), {x});
  at_once([&](int) {
    emit_library(graph, path, options);
    LibraryModel library(path);
    for (int i = 0; i < 5; i++) ASSERT_EQ(run(library, {x}), expected);
  });
  LibraryModel library(path);
  at_once([&](int) {
    for (int i = 0; i < 20; i++) ASSERT_EQ(run(library, {x}), expected);
  });
}

TEST(ThreadsAtOnce, AChildLinksThoughItsParentWasLinking) {
  const Folder folder;
  const auto graph = layer();
  CompileOptions options;
  options.cache_dir = folder / "cache";
  std::atomic<bool> end{false};
  std::jthread busy([&] {
    while (!end) emit_library(graph, folder / "parent.so", options);
  });
  emit_library(graph, folder / "child.so", options);  // the kernels are in the cache now
  for (int n = 0; n < 3; n++) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // what it waits for would never come
      emit_library(graph, folder / "child.so", options);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << "child " << n;
  }
  end = true;
}

}  // namespace
}  // namespace ingot
