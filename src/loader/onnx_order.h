// The order in which to read a graph's nodes.
#pragma once
#include <vector>

namespace onnx {
class NodeProto;
}
namespace google::protobuf {
template <class>
class RepeatedPtrField;
}

namespace ingot {

// The nodes so that each comes after those that make what it, or a subgraph in it, reads. Nodes already in order stay
// as they are, as the standard asks; others are sorted. A cycle, or two nodes making one tensor, is an InvalidModel
// error.
std::vector<int> reading_order(const google::protobuf::RepeatedPtrField<onnx::NodeProto>&);

}  // namespace ingot
