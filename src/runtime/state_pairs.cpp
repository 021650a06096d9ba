#include "runtime/state_pairs.h"

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.h"

namespace ingot {
namespace {

std::optional<size_t> port_named(const Graph& g, const std::vector<TensorId>& ports, const std::string& name) {
  for (size_t i = 0; i < ports.size(); i++)
    if (g.tensor(ports[i]).name == name) return i;
  return std::nullopt;
}

size_t need_port(const Graph& g, const std::vector<TensorId>& ports, const std::string& name, const char* what) {
  if (const auto found = port_named(g, ports, name)) return *found;
  std::string all;
  for (TensorId t : ports) all += (all.empty() ? "'" : ", '") + g.tensor(t).name + "'";
  throw Error(ErrorKind::InvalidInput, fmt::format("the model has no {} '{}'", what, name),
              fmt::format("its {}s are {}", what, all));
}

// "past_key_values.0.key" -> "present.0.key"
std::optional<size_t> output_named_after(const Graph& g, const std::string& input) {
  for (const std::string past : {"past_key_values", "past"}) {
    const size_t at = input.find(past);
    if (at == std::string::npos) continue;
    std::string name = input;
    if (const auto found = port_named(g, g.outputs, name.replace(at, past.size(), "present"))) return found;
  }
  return std::nullopt;
}

std::vector<Tied> found_pairs(const Graph& g) {
  const Uses uses(g);
  std::vector<Tied> out;
  for (size_t i = 0; i < g.inputs.size(); i++) {
    std::optional<size_t> output = output_named_after(g, g.tensor(g.inputs[i]).name);
    for (size_t o = 0; o < g.outputs.size() && !output; o++)
      if (adds_to(g, uses, {i, o})) output = o;
    if (output) out.push_back({i, *output});
  }
  if (out.empty())
    throw Error(ErrorKind::InvalidInput, "no output of the model is seen to be an input of its next run",
                "name the pairs: bind_state({input: output, ...})");
  return out;
}

void check_pair(const Graph& g, const Tied& pair) {
  const Tensor &in = g.tensor(g.inputs[pair.input]), &out = g.tensor(g.outputs[pair.output]);
  if (in.info.dtype != out.info.dtype)
    invalid_input("input '{}' is {} and output '{}' is {}: they cannot be one state", in.name, name(in.info.dtype),
                  out.name, name(out.info.dtype));
  if (!in.info.shape || !out.info.shape) return;
  const Shape &a = *in.info.shape, &b = *out.info.shape;
  bool fits = a.size() == b.size();
  for (size_t d = 0; fits && d < a.size(); d++) fits = !a[d].is_const() || !b[d].is_const() || a[d] == b[d];
  if (!fits)
    throw Error(
        ErrorKind::InvalidInput,
        fmt::format("output '{}' of shape {} cannot become input '{}' of shape {}", out.name, str(b), in.name, str(a)),
        "compile the model with free dims, if its lengths were fixed");
}

}  // namespace

std::vector<Tied> state_pairs(const Graph& g, const StateNames& names) {
  std::vector<Tied> out;
  for (const auto& [input, output] : names)
    out.push_back({need_port(g, g.inputs, input, "input"), need_port(g, g.outputs, output, "output")});
  if (names.empty()) out = found_pairs(g);
  std::set<size_t> inputs, outputs;
  for (const Tied& t : out) {
    check_pair(g, t);
    if (!inputs.insert(t.input).second)
      invalid_input("input '{}' is in two pairs of the state", g.tensor(g.inputs[t.input]).name);
    if (!outputs.insert(t.output).second)
      invalid_input("output '{}' is in two pairs of the state", g.tensor(g.outputs[t.output]).name);
  }
  return out;
}

const Node* adds_to(const Graph& g, const Uses& uses, const Tied& pair) {
  const TensorId input = g.inputs[pair.input], output = g.outputs[pair.output];
  const int maker = uses.producer[static_cast<size_t>(output)];
  if (maker < 0) return nullptr;
  const Node& n = g.nodes[static_cast<size_t>(maker)];
  const bool adds = n.is("Concat") && n.inputs[0] == input && std::count(n.inputs.begin(), n.inputs.end(), input) == 1;
  return adds ? &n : nullptr;
}

}  // namespace ingot
