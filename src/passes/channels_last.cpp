// Convolution networks in NHWC.
//
// Nodes that can work in either layout (convolutions, pooling, element-wise nodes, Concat, ...) form islands: two of
// them belong together when one reads the other's result. An island with a convolution in it moves to NHWC as a whole,
// attributes and constant operands permuted; transposes stand where its values enter and leave, and nowhere inside.
// What cannot move (Reshape, MatMul) keeps NCHW. simplify() then removes the border transposes that
// meet others or move only axes of size 1.
#include <algorithm>
#include <map>
#include <numeric>

#include "passes/channel_shuffle.h"
#include "passes/channels_last_rules.h"
#include "passes/constants.h"
#include "passes/editor.h"
#include "passes/passes.h"
#include "passes/simplify.h"

namespace ingot {
namespace {

using Handle = Editor::Handle;

// Disjoint sets of nodes; a set is wanted when one of its nodes is.
class Islands {
 public:
  explicit Islands(Handle count) : parent_(static_cast<size_t>(count)), wanted_(static_cast<size_t>(count)) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }
  void join(Handle a, Handle b) {
    a = find(a), b = find(b);
    parent_[static_cast<size_t>(b)] = a;
    if (wanted_[static_cast<size_t>(b)]) wanted_[static_cast<size_t>(a)] = true;
  }
  void want(Handle h) { wanted_[static_cast<size_t>(find(h))] = true; }
  bool wanted(Handle h) { return wanted_[static_cast<size_t>(find(h))]; }

 private:
  Handle find(Handle h) {
    while (parent_[static_cast<size_t>(h)] != h) {
      Handle& p = parent_[static_cast<size_t>(h)];
      p = parent_[static_cast<size_t>(p)];
      h = p;
    }
    return h;
  }
  std::vector<Handle> parent_;
  std::vector<bool> wanted_;
};

class Mover {
 public:
  explicit Mover(Editor& e) : e_(e), islands_(e.size()) {}

  void run() {
    const Handle count = e_.size();
    for (Handle h = 0; h < count; h++) moves_.push_back(layout_move(e_, e_.node(h)));
    for (Handle h = 0; h < count; h++) connect(h);
    for (Handle h = 0; h < count; h++)
      if (move_of(h) && islands_.wanted(h)) move(h);
    for (const Border& b : borders_) leave(b);
  }

 private:
  struct Border {
    TensorId plain, moved;
    std::string name;
    std::vector<std::string> origins;
  };

  const std::optional<LayoutMove>& move_of(Handle h) const { return moves_[static_cast<size_t>(h)]; }

  void connect(Handle h) {
    const auto& m = move_of(h);
    if (!m) return;
    if (m->wants) islands_.want(h);
    for (size_t i : m->operands) {
      Handle p = e_.producer(e_.node(h).inputs[i]);
      if (p != Editor::kNone && move_of(p) && move_of(p)->results_move && move_of(p)->rank == m->rank)
        islands_.join(p, h);
    }
  }

  // t in NHWC: made by a node that has moved, permuted at compile time, or transposed where it enters, once.
  TensorId entered(const Node& reader, TensorId t, size_t rank) {
    const bool keeps_rank = e_.is_constant(t) && !is_elementwise(reader);
    if (auto it = moved_.find({t, rank}); it != moved_.end() && !keeps_rank) return it->second;
    const Shape shape = *e_.info(t).shape;
    if (shape.size() <= 1 && product(shape).is(1)) return t;
    if (keeps_rank) return permuted_constant(t, rank, true);  // only what broadcasts may lose its leading ones
    TensorId out = e_.is_constant(t) ? permuted_constant(t, rank, false) : transposed_value(reader, t, rank);
    moved_[{t, rank}] = out;
    return out;
  }

  TensorId permuted_constant(TensorId t, size_t rank, bool keep_rank) {
    std::vector<int64_t> dims = numbers(padded_shape(*e_.info(t).shape, rank));
    ConstantPtr c = transposed(reshaped(e_.info(t).constant, dims), to_channels_last(rank));
    dims = c->dims;
    while (!keep_rank && dims.size() > 1 && dims[0] == 1)
      dims.erase(dims.begin());  // a vector over channels becomes one again
    return e_.add_constant(e_.graph.tensor(t).name + "/channels_last", reshaped(c, dims));
  }

  TensorId transposed_value(const Node& reader, TensorId t, size_t rank) {
    const auto perm = to_channels_last(rank);
    const DType dtype = e_.info(t).dtype;
    const Shape shape = *e_.info(t).shape, full = padded_shape(shape, rank);
    if (shape.size() < rank) {
      std::vector<int64_t> axes(rank - shape.size());
      std::iota(axes.begin(), axes.end(), 0);
      t = e_.emit(reader, "Unsqueeze", {t, e_.add_ints(reader.name + "/axes", axes)}, {}, dtype, full);
    }
    return e_.emit(reader, "Transpose", {t}, {{"perm", perm}}, dtype, permuted(full, perm));
  }

  void move(Handle h) {
    const LayoutMove& m = *move_of(h);
    Node n = e_.node(h);
    for (size_t i : m.operands) n.inputs[i] = entered(n, n.inputs[i], m.rank);
    m.rewrite(e_, n, m.rank);
    e_.erase(h);
    for (TensorId& t : n.outputs) {
      if (t == kNoTensor || !m.results_move) continue;
      const TensorId plain = t;
      t = e_.add_value(e_.graph.tensor(plain).name + "/channels_last", e_.info(plain).dtype,
                       permuted(*e_.info(plain).shape, to_channels_last(m.rank)));
      moved_[{plain, m.rank}] = t;
      borders_.push_back({plain, t, n.name, n.origins});
    }
    e_.add(std::move(n));
  }

  // A value that somebody outside reads comes back as the tensor it was.
  void leave(const Border& b) {
    if (e_.consumers(b.plain).empty() && !e_.is_output(b.plain)) return;
    Node back{.op = "Transpose", .name = b.name + "/channels_first", .inputs = {b.moved}, .outputs = {b.plain}};
    back.attrs = {{"perm", to_channels_first(e_.info(b.plain).shape->size())}};
    back.origins = b.origins;
    e_.add(std::move(back));
  }

  Editor& e_;
  Islands islands_;
  std::vector<std::optional<LayoutMove>> moves_;
  std::map<std::pair<TensorId, size_t>, TensorId> moved_;
  std::vector<Border> borders_;
};

}  // namespace

void channels_last(Graph& graph) {
  {
    Editor e(graph);
    find_channel_shuffles(e);
    e.finish();  // the nodes are in topological order again, as the Mover walks them
  }
  Editor e(graph);
  Mover(e).run();
  expand_channel_shuffles(e);
  e.finish();
}

}  // namespace ingot
