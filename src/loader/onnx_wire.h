// Cuts the weights out of an ONNX file before protobuf sees it.
//
// protobuf copies every byte it parses and cannot parse more than 2 GB. The scanner walks the wire format along the
// fields that lead to tensors (graph, node, attribute, initializer, function), copies everything else, and replaces
// each large TensorProto.raw_data by a note of where it lies. Loading then costs the same whatever the weights weigh.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace ingot {

inline constexpr int kMaxGraphDepth = 64;  // subgraphs and function bodies inside each other

// The ModelProto without its large raw_data; training_info is left out. InvalidModel when the bytes are not
// well-formed along the way: every length is checked before it is believed.
std::string cut_raw_data(std::span<const std::byte> file);

// The note takes the form of TensorProto.segment with begin = ~offset and end = size. ONNX has no negative begin, so
// it cannot be confused with a real one; a forged one can only point inside the file.
struct RawRange {
  int64_t offset, size;
};
std::optional<RawRange> cut_range(int64_t segment_begin, int64_t segment_end);

}  // namespace ingot
