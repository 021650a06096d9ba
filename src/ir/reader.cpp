#include "ir/reader.h"

#include <unordered_map>

#include "base/checked.h"
#include "ir/checksums.h"
#include "ir/dim.h"
#include "ir/tree.h"
#include "ir/values.h"

namespace ingot {
namespace {

constexpr int kMaxGraphDepth = 64;
constexpr int64_t kAlignment = 64;

struct Weights {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
  std::vector<Checksum>* checksums;  // to be compared when the graph is read
};

DType read_dtype(const IrTree& t) {
  auto dtype = dtype_from_name(t.name());
  if (!dtype) t.fail("'{}' is not an element type", t.text);
  return *dtype;
}

Dim read_dim(const IrTree& t) {
  if (t.kind == IrTree::Map) {  // a symbol that would read as something else
    t.only({"symbol"});
    return Dim::symbol(t.need("symbol").name());
  }
  if (t.name() == "?") return Dim::unknown();
  auto dim = parse_dim(t.text);
  if (!dim || (dim->is_const() && dim->value() < 0)) t.fail("'{}' is not a dimension", t.text);
  return *dim;
}

Shape read_shape(const IrTree& t) {
  Shape shape;
  for (const IrTree& d : t.expect(IrTree::List).items) shape.push_back(read_dim(d));
  return shape;
}

std::vector<int64_t> read_dims(const IrTree& t) {
  std::vector<int64_t> dims;
  int64_t elements = 1;
  for (const IrTree& d : t.expect(IrTree::List).items) {
    dims.push_back(d.integer());
    if (dims.back() < 0) d.fail("a constant has the negative dimension {}", dims.back());
    if (dims.back() > 0 && __builtin_mul_overflow(elements, dims.back(), &elements))
      d.fail("the size of the shape overflows");
  }
  return dims;
}

ConstantPtr read_located(const IrTree& t, DType dtype, std::vector<int64_t> dims, const Weights& weights) {
  const IrTree& location = t.need("location").expect(IrTree::List);
  if (location.items.size() != 2) location.fail("a location is [offset, size]");
  const int64_t offset = location.items[0].integer(), size = location.items[1].integer();
  if (!range_inside(offset, size, static_cast<int64_t>(weights.bytes.size())))
    location.fail("location [{}, {}] is outside the weights, which have {} bytes", offset, size, weights.bytes.size());
  if (offset % kAlignment) location.fail("offset {} is not a multiple of {}", offset, kAlignment);
  auto c = std::make_shared<Constant>();
  c->dtype = dtype;
  c->dims = std::move(dims);
  if (bits(dtype) == 0) location.fail("a constant of type {} has no bytes", name(dtype));
  const int64_t expected = byte_size(dtype, c->elements());
  if (size != expected) location.fail("the shape takes {} bytes, the location has {}", expected, size);
  c->bytes = weights.bytes.subspan(static_cast<size_t>(offset), static_cast<size_t>(size));
  c->owner = weights.owner;
  weights.checksums->push_back({c->bytes, &t.need("checksum").expect(IrTree::Scalar)});
  return c;
}

// Nothing when the entry is not a constant.
ConstantPtr read_constant(const IrTree& t, const Weights& weights) {
  const IrTree *value = t.find("value"), *location = t.find("location");
  if (!value && !location) return nullptr;
  if (value && location) value->fail("a constant has a value or a location, not both");
  const DType dtype = read_dtype(t.need("dtype"));
  std::vector<int64_t> dims = read_dims(t.need("shape"));
  return value ? ir_inline_constant(*value, dtype, std::move(dims)) : read_located(t, dtype, std::move(dims), weights);
}

class GraphReader {
 public:
  GraphReader(const Weights& weights, int depth) : weights_(weights), depth_(depth) {}

  GraphPtr read(const IrTree& t) {
    if (depth_ > kMaxGraphDepth) t.fail("subgraphs are nested more than {} deep", kMaxGraphDepth);
    graph_->name = t.need("model").name();
    const IrTree& tensors = t.need("tensors").expect(IrTree::Map);
    for (size_t i = 0; i < tensors.keys.size(); i++) add_tensor(tensors.keys[i], tensors.items[i]);
    for (const IrTree& n : t.need("inputs").expect(IrTree::List).items) graph_->inputs.push_back(find(n));
    const IrTree& operators = t.need("operator").expect(IrTree::Map);
    for (size_t i = 0; i < operators.keys.size(); i++) add_node(operators.keys[i], operators.items[i]);
    for (const IrTree& n : t.need("outputs").expect(IrTree::List).items) graph_->outputs.push_back(find(n));
    if (const IrTree* metadata = t.find("metadata")) {
      metadata->expect(IrTree::Map);
      for (size_t i = 0; i < metadata->keys.size(); i++)
        graph_->metadata[metadata->keys[i]] = ir_string(metadata->items[i]);
    }
    return graph_;
  }

 private:
  void add_tensor(const std::string& name, const IrTree& t) {
    if (name.empty()) t.fail("a tensor has no name");
    t.only({"dtype", "shape", "form", "location", "checksum", "value"});
    TensorInfo info;
    if (ConstantPtr c = read_constant(t, weights_)) {
      info = {c->dtype, to_shape(c->dims), std::nullopt, c};
    } else {
      if (const IrTree* dtype = t.find("dtype")) info.dtype = read_dtype(*dtype);
      if (const IrTree* shape = t.find("shape")) info.shape = read_shape(*shape);
      if (const IrTree* form = t.find("form")) {
        const auto found = form_from_name(form->name());
        if (!found) form->fail("there is no form '{}'", form->text);
        info.form = *found;
      }
      if (const IrTree* checksum = t.find("checksum")) checksum->fail("a checksum without a location");
    }
    ids_.emplace(name, graph_->add_tensor(name, std::move(info)));
  }

  TensorId find(const IrTree& t) const {
    auto it = ids_.find(t.name());
    if (it == ids_.end()) t.fail("tensor '{}' is not known", t.text);
    return it->second;
  }

  void add_node(const std::string& name, const IrTree& t) {
    if (name.empty()) t.fail("an operator has no name");
    t.only({"type", "domain", "input", "output", "attr", "origins"});
    Node node;
    node.name = name;
    node.op = t.need("type").name();
    if (node.op.empty()) t.fail("an operator has no type");
    if (const IrTree* domain = t.find("domain")) node.domain = domain->name();
    for (const IrTree& n : t.need("input").expect(IrTree::List).items)
      node.inputs.push_back(n.name().empty() ? kNoTensor : find(n));
    for (const IrTree& n : t.need("output").expect(IrTree::List).items) {
      if (n.name().empty()) {
        node.outputs.push_back(kNoTensor);
        continue;
      }
      // Results need no entry under `tensors`: their types can be inferred.
      auto [it, fresh] = ids_.try_emplace(n.text, kNoTensor);
      if (fresh) it->second = graph_->add_tensor(n.text);
      node.outputs.push_back(it->second);
    }
    if (const IrTree* attrs = t.find("attr")) {
      attrs->expect(IrTree::Map);
      for (size_t i = 0; i < attrs->keys.size(); i++)
        node.attrs.emplace(attrs->keys[i], read_attribute(attrs->items[i]));
    }
    const IrTree* origins = t.find("origins");
    node.origins = origins ? origins->names() : std::vector<std::string>{name};
    graph_->nodes.push_back(std::move(node));
  }

  Attribute read_attribute(const IrTree& t) {
    if (t.kind == IrTree::Map) {
      if (const IrTree* graph = t.find("graph")) {
        t.only({"graph"});
        graph->only({"model", "inputs", "outputs", "tensors", "operator", "metadata"});
        return GraphReader(weights_, depth_ + 1).read(*graph);
      }
      if (t.find("dtype")) {
        t.only({"dtype", "shape", "location", "checksum", "value"});
        if (ConstantPtr c = read_constant(t, weights_)) return c;
        t.fail("a tensor in an attribute has no value and no location");
      }
    }
    return ir_attribute(t);
  }

  const Weights& weights_;
  int depth_;
  GraphPtr graph_ = std::make_shared<Graph>();
  std::unordered_map<std::string, TensorId> ids_;
};

void check_header(const IrTree& root, size_t weights_size) {
  root.only({"format", "version", "model", "metadata", "weights", "inputs", "outputs", "tensors", "operator"});
  if (root.need("format").name() != "ingot-ir")
    root.need("format").fail("format '{}' is not ingot-ir", root.need("format").text);
  const IrTree& version = root.need("version");
  if (version.integer() != 1)
    throw Error(ErrorKind::Unsupported,
                fmt::format("line {}: IR version {} is not supported, only 1", version.line, version.text),
                "compile the model again with this version of ingot");
  const IrTree& weights = root.need("weights");
  weights.only({"file", "size"});
  if (weights.need("size").integer() != static_cast<int64_t>(weights_size))
    weights.fail("the weights have {} bytes, expected {}", weights_size, weights.need("size").text);
}

}  // namespace

std::shared_ptr<Graph> read_graph(std::string_view yaml, std::span<const std::byte> weights,
                                  std::shared_ptr<const void> owner, const IrReadOptions& options) try {
  const IrTree root = parse_ir_tree(yaml);
  check_header(root, weights.size());
  std::vector<Checksum> checksums;
  const Weights located{weights, std::move(owner), &checksums};
  GraphPtr graph = GraphReader(located, 0).read(root);
  if (graph->outputs.empty()) root.need("outputs").fail("the graph has no outputs");
  verify(*graph);
  if (options.verify_checksums) verify_checksums(checksums);
  return graph;
} catch (const Error& e) {
  throw e.at(options.name);
}

}  // namespace ingot
