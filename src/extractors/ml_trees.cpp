// ai.onnx.ml: tree ensembles. All spellings become ingot.TreeEnsemble, whose operands are flat constants with every
// node before its children, and standard operators for labels and transforms.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "extractors/ml.h"
#include "kernels/tree_ensemble.h"

namespace ingot {
namespace {

struct Branch {
  int32_t test = kTreeLeaf;
  int64_t feature = 0;
  double threshold = 0;
  int64_t yes = -1, no = -1;  // indices of nodes
  bool missing = false;
};

struct Vote {
  int64_t target;
  double weight;
};

struct Trees {
  std::vector<Branch> nodes;
  std::map<int64_t, std::vector<Vote>> votes;  // of leaves
  std::vector<int64_t> roots;
  std::vector<double> base;
  int64_t targets = 1, aggregate = kTreeSum;
  bool whole = false;  // every node is below a root, or the model is broken
};

// Nodes in an order in which parents come first; each node may have several parents, but no node itself below it.
std::vector<int64_t> ordered(Rewriter& r, const Trees& trees) {
  enum State : char { kNew, kOpen, kDone };
  std::vector<char> state(trees.nodes.size(), kNew);
  std::vector<int64_t> order, stack;
  for (int64_t root : trees.roots) stack.push_back(root);
  while (!stack.empty()) {
    const int64_t at = stack.back();
    if (at < 0 || at >= std::ssize(trees.nodes)) r.fail(ErrorKind::InvalidModel, "names node {}, which it has not", at);
    const auto i = static_cast<size_t>(at);
    if (state[i] != kNew) {
      stack.pop_back();
      if (state[i] == kOpen) order.push_back(at);
      state[i] = kDone;
      continue;
    }
    state[i] = kOpen;
    const Branch& b = trees.nodes[i];
    if (b.test == kTreeLeaf) continue;
    for (int64_t child : {b.yes, b.no}) {
      if (child >= 0 && child < std::ssize(state) && state[static_cast<size_t>(child)] == kOpen)
        r.fail(ErrorKind::InvalidModel, "has a tree in which node {} is below itself", child);
      stack.push_back(child);
    }
  }
  std::reverse(order.begin(), order.end());
  return order;
}

template <class T>
TensorId constant(Rewriter& r, DType t, std::vector<int64_t> dims, const std::vector<T>& values, const char* what) {
  return r.constant(make_constant(t, std::move(dims), values), what);
}

TensorId emit_trees(Rewriter& r, const Trees& trees, bool f64) {
  constexpr int64_t kMaxTargets = 1 << 20;
  if (trees.targets < 1 || trees.targets > kMaxTargets)
    r.fail(ErrorKind::InvalidModel, "cannot have {} results", trees.targets);
  const auto order = ordered(r, trees);
  if (trees.whole && order.size() != trees.nodes.size())
    r.fail(ErrorKind::InvalidModel, "{} nodes are below no root", trees.nodes.size() - order.size());
  std::vector<int32_t> place(trees.nodes.size(), -1), nodes, roots, targets;
  std::vector<double> thresholds, weights;
  for (size_t i = 0; i < order.size(); i++) place[static_cast<size_t>(order[i])] = static_cast<int32_t>(i);
  for (int64_t at : order) {
    const Branch& b = trees.nodes[static_cast<size_t>(at)];
    thresholds.push_back(b.threshold);
    if (b.test != kTreeLeaf) {
      if (b.feature < 0 || b.feature > INT32_MAX)
        r.fail(ErrorKind::InvalidModel, "a node looks at feature {}", b.feature);
      nodes.insert(nodes.end(), {b.test | (b.missing ? kTreeMissing : 0), static_cast<int32_t>(b.feature),
                                 place[static_cast<size_t>(b.yes)], place[static_cast<size_t>(b.no)]});
      continue;
    }
    const auto it = trees.votes.find(at);
    const size_t count = it == trees.votes.end() ? 0 : it->second.size();
    nodes.insert(nodes.end(), {kTreeLeaf, 0, static_cast<int32_t>(targets.size()), static_cast<int32_t>(count)});
    for (size_t v = 0; v < count; v++) {
      const Vote& vote = it->second[v];
      if (vote.target < 0 || vote.target >= trees.targets)
        r.fail(ErrorKind::InvalidModel, "a leaf votes for {} of {} results", vote.target, trees.targets);
      targets.push_back(static_cast<int32_t>(vote.target));
      weights.push_back(vote.weight);
    }
  }
  for (int64_t root : trees.roots) roots.push_back(place[static_cast<size_t>(root)]);
  auto base = trees.base;
  base.resize(static_cast<size_t>(trees.targets), 0);
  const std::vector<TensorId> inputs = {
      r.need_input(0),
      constant(r, DType::I32, {std::ssize(order), 4}, nodes, "nodes"),
      constant(r, DType::F64, {std::ssize(order)}, thresholds, "thresholds"),
      constant(r, DType::I32, {std::ssize(roots)}, roots, "roots"),
      constant(r, DType::I32, {std::ssize(targets)}, targets, "targets"),
      constant(r, DType::F64, {std::ssize(weights)}, weights, "weights"),
      constant(r, DType::F64, {trees.targets}, base, "base"),
  };
  return r.emit("TreeEnsemble", inputs, {{"aggregate", trees.aggregate}, {"f64", int64_t{f64}}}, "ingot");
}

// Reals, in a list of floats or in a tensor under the same name with "_as_tensor".
std::vector<double> reals(Rewriter& r, const ConstantPtr& c, const char* what) {
  std::vector<double> out;
  if (c->dtype == DType::F32)
    for (float v : c->as<float>()) out.push_back(static_cast<double>(v));
  else if (c->dtype == DType::F64)
    for (double v : c->as<double>()) out.push_back(v);
  else
    r.fail(ErrorKind::Unsupported, "{} is of type {}, served are f32 and f64", what, name(c->dtype));
  return out;
}
std::vector<double> reals(Rewriter& r, const std::string& attr) {
  if (const ConstantPtr c = r.node.get_constant(attr + "_as_tensor")) return reals(r, c, attr.c_str());
  const auto v = r.node.get_floats(attr);
  return {v.begin(), v.end()};
}

int32_t test_of(Rewriter& r, const std::string& mode) {
  static const std::map<std::string, int32_t> tests = {
      {"BRANCH_LEQ", kTreeLe}, {"BRANCH_LT", kTreeLt},  {"BRANCH_GTE", kTreeGe}, {"BRANCH_GT", kTreeGt},
      {"BRANCH_EQ", kTreeEq},  {"BRANCH_NEQ", kTreeNe}, {"LEAF", kTreeLeaf}};
  auto it = tests.find(mode);
  if (it == tests.end()) r.fail(ErrorKind::InvalidModel, "node mode '{}' is not known", mode);
  return it->second;
}

void need_size(Rewriter& r, size_t size, size_t expected, const char* what) {
  if (size != expected) r.fail(ErrorKind::InvalidModel, "has {} {}, expected {}", size, what, expected);
}

// Nodes named by (tree, node), votes by `prefix`: "target" or "class".
Trees read_named(Rewriter& r, const std::string& prefix) {
  const Node& n = r.node;
  const auto tree = n.get_ints("nodes_treeids"), id = n.get_ints("nodes_nodeids"),
             feature = n.get_ints("nodes_featureids"), yes = n.get_ints("nodes_truenodeids"),
             no = n.get_ints("nodes_falsenodeids"), missing = n.get_ints("nodes_missing_value_tracks_true");
  const auto modes = n.get_strings("nodes_modes");
  const auto values = reals(r, "nodes_values");
  const size_t count = id.size();
  need_size(r, tree.size(), count, "nodes_treeids");
  need_size(r, feature.size(), count, "nodes_featureids");
  need_size(r, yes.size(), count, "nodes_truenodeids");
  need_size(r, no.size(), count, "nodes_falsenodeids");
  need_size(r, modes.size(), count, "nodes_modes");
  need_size(r, values.size(), count, "nodes_values");
  if (!missing.empty()) need_size(r, missing.size(), count, "nodes_missing_value_tracks_true");

  Trees out;
  out.whole = true;
  std::map<std::pair<int64_t, int64_t>, int64_t> index;
  for (size_t i = 0; i < count; i++) index[{tree[i], id[i]}] = static_cast<int64_t>(i);
  auto find = [&](int64_t t, int64_t node) {
    auto it = index.find({t, node});
    if (it == index.end()) r.fail(ErrorKind::InvalidModel, "tree {} has no node {}", t, node);
    return it->second;
  };
  std::vector<bool> is_child(count, false);
  for (size_t i = 0; i < count; i++) {
    Branch b{test_of(r, modes[i]), feature[i], values[i], -1, -1, !missing.empty() && missing[i] != 0};
    if (b.test != kTreeLeaf) {
      b.yes = find(tree[i], yes[i]);
      b.no = find(tree[i], no[i]);
      is_child[static_cast<size_t>(b.yes)] = is_child[static_cast<size_t>(b.no)] = true;
    }
    out.nodes.push_back(b);
  }
  std::map<int64_t, int> roots_of;
  for (size_t i = 0; i < count; i++) {
    roots_of[tree[i]] += !is_child[i];
    if (!is_child[i]) out.roots.push_back(static_cast<int64_t>(i));
  }
  for (const auto& [t, roots] : roots_of)
    if (roots != 1)
      r.fail(ErrorKind::InvalidModel, "tree {} has {} nodes that are below no other, expected 1", t, roots);

  const auto vote_tree = n.get_ints(prefix + "_treeids"), vote_node = n.get_ints(prefix + "_nodeids"),
             vote_id = n.get_ints(prefix + "_ids");
  const auto weights = reals(r, prefix + "_weights");
  need_size(r, vote_tree.size(), vote_id.size(), "tree ids of votes");
  need_size(r, vote_node.size(), vote_id.size(), "node ids of votes");
  need_size(r, weights.size(), vote_id.size(), "weights of votes");
  for (size_t i = 0; i < vote_id.size(); i++)
    out.votes[find(vote_tree[i], vote_node[i])].push_back({vote_id[i], weights[i]});
  return out;
}

constexpr const char* kAggregates[] = {"AVERAGE", "SUM", "MIN", "MAX"};
constexpr const char* kTransforms[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};

void regressor(Rewriter& r) {
  Trees trees = read_named(r, "target");
  trees.targets = r.node.get_int("n_targets", 1);
  trees.base = reals(r, "base_values");
  if (std::ssize(trees.base) > trees.targets)
    r.fail(ErrorKind::InvalidModel, "has {} base values for {} targets", trees.base.size(), trees.targets);
  const std::string aggregate = r.node.get_string("aggregate_function", "SUM");
  const auto* found = std::find(std::begin(kAggregates), std::end(kAggregates), aggregate);
  if (found == std::end(kAggregates))
    r.fail(ErrorKind::InvalidModel, "aggregate_function '{}' is not known", aggregate);
  trees.aggregate = found - std::begin(kAggregates);
  const TensorId y = emit_trees(r, trees, false);
  set_result(r, 0, post_transformed(r, y, r.node.get_string("post_transform", "NONE")));
  r.drop();
}

// All votes go to one of two classes: its score s decides, against 1/2 where no weight is negative (they are
// probabilities), otherwise against 0. Votes for the first class count for the second, and the first gets the
// complement: 1 - s, or -s. Votes for the second leave the first at 0.
void one_score(Rewriter& r, const Trees& trees, const ClassLabels& labels, const std::string& transform,
               bool for_first) {
  bool positive = true;
  for (const auto& [leaf, votes] : trees.votes)
    for (const Vote& v : votes) positive &= v.weight >= 0;
  const TensorId s = emit_trees(r, trees, false);
  const TensorId limit = floats(r, {positive ? 0.5f : 0.f}, {}, "limit");
  const TensorId above = r.emit("Squeeze", {r.emit("Greater", {s, limit}), r.ints({1}, "axes")});
  set_result(r, 0, labels_at(r, labels, cast_to(r, above, DType::I64)));
  TensorId first;
  if (!for_first)
    first = r.emit("Mul", {s, floats(r, {0}, {}, "zero")});
  else if (positive && transform != "LOGISTIC")
    first = r.emit("Sub", {floats(r, {1}, {}, "one"), s});
  else
    first = r.emit("Neg", {s});
  const TensorId both = r.emit("Concat", {first, s}, {{"axis", int64_t{1}}});
  const bool transforms = !for_first || transform == "LOGISTIC";
  set_result(r, 1, transforms ? post_transformed(r, both, transform) : both);
  r.drop();
}

void classifier(Rewriter& r) {
  const auto labels = class_labels(r, "classlabels_int64s");
  const std::string transform = r.node.get_string("post_transform", "NONE");
  Trees trees = read_named(r, "class");
  trees.targets = std::ssize(labels);
  trees.base = reals(r, "base_values");
  if (std::ssize(trees.base) > trees.targets)
    r.fail(ErrorKind::InvalidModel, "has {} base values for {} classes", trees.base.size(), trees.targets);
  std::set<int64_t> voted;
  for (const auto& [leaf, votes] : trees.votes)
    for (const Vote& v : votes) voted.insert(v.target);
  if (labels.size() == 2 && voted.size() == 1) {
    const bool for_first = *voted.begin() == 0;
    if (trees.base.size() == 2) trees.base = {trees.base[for_first ? 0 : 1]};
    for (auto& [leaf, votes] : trees.votes)
      for (Vote& v : votes) v.target = 0;
    trees.targets = 1;
    return one_score(r, trees, labels, transform, for_first);
  }
  const TensorId scores = emit_trees(r, trees, false);
  const TensorId best = r.emit("ArgMax", {scores}, {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}});
  set_result(r, 0, labels_at(r, labels, best));
  set_result(r, 1, post_transformed(r, scores, transform));
  r.drop();
}

// x in {a, b, ...} is x == a, else x == b, else ...; all of them lead to the same node when true.
void expand_members(Trees& trees, size_t at, const std::vector<double>& members) {
  const Branch original = trees.nodes[at];
  size_t current = at;
  trees.nodes[at].test = kTreeEq;
  trees.nodes[at].threshold = members.empty() ? std::nan("") : members[0];
  for (size_t i = 1; i < members.size(); i++) {
    Branch next = original;
    next.test = kTreeEq;
    next.threshold = members[i];
    trees.nodes[current].no = std::ssize(trees.nodes);
    trees.nodes.push_back(next);
    current = trees.nodes.size() - 1;
  }
}

std::vector<std::vector<double>> member_sets(Rewriter& r) {
  std::vector<std::vector<double>> out;
  const ConstantPtr c = r.node.get_constant("membership_values");
  if (!c) return out;
  std::vector<double> set;
  for (double v : reals(r, c, "membership_values")) {
    if (!std::isnan(v)) {
      set.push_back(v);
      continue;
    }
    out.push_back(std::move(set));
    set.clear();
  }
  if (!set.empty()) out.push_back(std::move(set));
  return out;
}

// Opset 5: nodes and leaves are numbered apart.
void ensemble(Rewriter& r) {
  const Node& n = r.node;
  const ConstantPtr modes = n.get_constant("nodes_modes"), splits = n.get_constant("nodes_splits"),
                    leaf_weights = n.get_constant("leaf_weights");
  if (!modes || modes->dtype != DType::U8 || !splits || !leaf_weights)
    r.fail(ErrorKind::InvalidModel, "needs nodes_modes (u8), nodes_splits and leaf_weights");
  const auto mode = modes->as<uint8_t>();
  const auto thresholds = reals(r, splits, "nodes_splits"), weights = reals(r, leaf_weights, "leaf_weights");
  const auto feature = n.get_ints("nodes_featureids"), yes = n.get_ints("nodes_truenodeids"),
             no = n.get_ints("nodes_falsenodeids"), yes_leaf = n.get_ints("nodes_trueleafs"),
             no_leaf = n.get_ints("nodes_falseleafs"), missing = n.get_ints("nodes_missing_value_tracks_true"),
             leaf_target = n.get_ints("leaf_targetids");
  const size_t count = mode.size(), leaves = weights.size();
  need_size(r, thresholds.size(), count, "nodes_splits");
  need_size(r, feature.size(), count, "nodes_featureids");
  need_size(r, yes.size(), count, "nodes_truenodeids");
  need_size(r, no.size(), count, "nodes_falsenodeids");
  need_size(r, yes_leaf.size(), count, "nodes_trueleafs");
  need_size(r, no_leaf.size(), count, "nodes_falseleafs");
  need_size(r, leaf_target.size(), leaves, "leaf_targetids");
  if (!missing.empty()) need_size(r, missing.size(), count, "nodes_missing_value_tracks_true");

  Trees trees;
  auto child = [&](int64_t at, bool leaf) {
    const size_t limit = leaf ? leaves : count;
    if (at < 0 || at >= static_cast<int64_t>(limit))
      r.fail(ErrorKind::InvalidModel, "names {} {} of {}", leaf ? "leaf" : "node", at, limit);
    return leaf ? at + static_cast<int64_t>(count) : at;
  };
  constexpr uint8_t kMember = 6;
  for (size_t i = 0; i < count; i++) {
    if (mode[i] > kMember) r.fail(ErrorKind::InvalidModel, "node mode {} is not known", mode[i]);
    trees.nodes.push_back({mode[i] == kMember ? static_cast<int32_t>(kTreeEq) : mode[i], feature[i], thresholds[i],
                           child(yes[i], yes_leaf[i] != 0), child(no[i], no_leaf[i] != 0),
                           !missing.empty() && missing[i] != 0});
  }
  for (size_t i = 0; i < leaves; i++) {
    trees.votes[std::ssize(trees.nodes)] = {{leaf_target[i], weights[i]}};
    trees.nodes.emplace_back();
  }
  const auto sets = member_sets(r);
  size_t next_set = 0;
  for (size_t i = 0; i < count; i++) {
    if (mode[i] != kMember) continue;
    if (next_set >= sets.size()) r.fail(ErrorKind::InvalidModel, "has fewer sets of members than nodes that test them");
    expand_members(trees, i, sets[next_set++]);
  }
  trees.roots = n.get_ints("tree_roots");
  trees.targets = n.get_int("n_targets", 1);
  trees.aggregate = n.get_int("aggregate_function", kTreeSum);
  const int64_t transform = n.get_int("post_transform", 0);
  if (transform < 0 || transform >= std::ssize(kTransforms))
    r.fail(ErrorKind::InvalidModel, "post_transform is {}", transform);
  const TensorId y = emit_trees(r, trees, splits->dtype == DType::F64);
  set_result(r, 0, post_transformed(r, y, kTransforms[transform]));
  r.drop();
}

constexpr Rule kRules[] = {
    {"TreeEnsemble", 5, kAnyVersion, ensemble},
    {"TreeEnsembleClassifier", 1, kAnyVersion, classifier},
    {"TreeEnsembleRegressor", 1, kAnyVersion, regressor},
};

}  // namespace

RuleTable ml_tree_rules() { return {"ai.onnx.ml", kRules}; }

}  // namespace ingot
