// TypeProto -> TensorInfo, and the names of symbolic dimensions.
#pragma once
#include <string>
#include <unordered_map>

#include "base/unique_names.h"
#include "graph/graph.h"

namespace onnx {
class ValueInfoProto;
}

namespace ingot {

// Symbols for the dimension names of one model. A dim_param may be any text ("batch size", "s0 + 1"); a symbol is one
// word, so that expressions over symbols can be written and read. Different texts become different symbols.
class SymbolNames {
 public:
  Dim dim(const std::string& text);

 private:
  std::unordered_map<std::string, std::string> symbols_;
  UniqueNames taken_;
};

enum class Role { Input, Other };

// What a ValueInfoProto says. Unnamed dims of an input become the symbol "<input>_dim<k>"; elsewhere they are unknown.
// Undefined dtype when no type is given. Sequences, optionals and maps are Unsupported.
TensorInfo read_type(const onnx::ValueInfoProto&, Role, SymbolNames&);

}  // namespace ingot
