#include "runtime/json.h"

#include "base/error.h"

namespace ingot {

std::string json_string(const std::string& s) {
  std::string out = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\')
      out += '\\', out += c;
    else if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    else
      out += c;
  }
  return out + "\"";
}

std::string ports_json(const Graph& g, const std::vector<TensorId>& ids) {
  std::string out = "[";
  for (size_t i = 0; i < ids.size(); i++) {
    const Tensor& t = g.tensor(ids[i]);
    std::string shape = t.info.shape ? "[" : "null";
    if (t.info.shape) {
      for (size_t d = 0; d < t.info.shape->size(); d++) {
        const Dim& dim = (*t.info.shape)[d];
        shape += (d ? ", " : "") + (dim.is_const() ? dim.str() : json_string(dim.str()));
      }
      shape += "]";
    }
    const std::string form = t.info.form == Form::Tensor ? "" : fmt::format(R"(, "form": "{}")", name(t.info.form));
    out += fmt::format(R"({}{{"name": {}, "dtype": "{}", "shape": {}{}}})", i ? ", " : "", json_string(t.name),
                       name(t.info.dtype), shape, form);
  }
  return out + "]";
}

std::string signature_json(const Graph& g) {
  return fmt::format(R"({{"inputs": {}, "outputs": {}}})", ports_json(g, g.inputs), ports_json(g, g.outputs));
}

}  // namespace ingot
