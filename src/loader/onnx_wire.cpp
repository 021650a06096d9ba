#include "loader/onnx_wire.h"

#include <utility>

#include "base/error.h"

namespace ingot {
namespace {

constexpr size_t kCutFrom = 1024;  // smaller data is cheaper to copy than to note
constexpr int kMaxDepth = 4 * kMaxGraphDepth;

enum class Message { None, Model, Graph, Node, Attribute, Sparse, Tensor, Function };

// The fields, of each message, through which tensors are reached. Numbers are those of onnx.proto.
Message child(Message parent, uint32_t field) {
  switch (parent) {
    case Message::Model:
      return field == 7 ? Message::Graph : field == 25 ? Message::Function : Message::None;
    case Message::Function:
      return field == 7 ? Message::Node : field == 11 ? Message::Attribute : Message::None;
    case Message::Graph:
      return field == 1 ? Message::Node : field == 5 ? Message::Tensor : field == 15 ? Message::Sparse : Message::None;
    case Message::Node:
      return field == 5 ? Message::Attribute : Message::None;
    case Message::Attribute:
      return field == 5 || field == 10    ? Message::Tensor
             : field == 6 || field == 11  ? Message::Graph
             : field == 22 || field == 23 ? Message::Sparse
                                          : Message::None;
    case Message::Sparse:
      return field == 1 || field == 2 ? Message::Tensor : Message::None;
    default:
      return Message::None;
  }
}
constexpr uint32_t kRawData = 9;        // of TensorProto
constexpr uint32_t kSegment = 3;        // of TensorProto
constexpr uint32_t kTrainingInfo = 20;  // of ModelProto

class Cutter {
 public:
  explicit Cutter(std::span<const std::byte> file)
      : data_(reinterpret_cast<const uint8_t*>(file.data())), file_(file) {}

  std::string run() {
    message(Message::Model, 0, file_.size(), 0);
    return std::move(out_);
  }

 private:
  [[noreturn]] void broken(size_t at, const char* why) const {
    throw Error(ErrorKind::InvalidModel,
                fmt::format("is not a complete ONNX file: {} at byte {} of {}", why, at, file_.size()),
                "the file may be truncated, or not an ONNX model");
  }

  uint64_t varint(size_t& at, size_t end) const {
    uint64_t value = 0;
    const size_t start = at;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at >= end) broken(start, "a number runs past the end");
      const uint8_t byte = data_[at++];
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (!(byte & 0x80)) return value;
    }
    broken(start, "a number has more than 64 bits");
  }

  void put_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_.push_back(static_cast<char>(value | 0x80));
    out_.push_back(static_cast<char>(value));
  }

  void copy(size_t from, size_t to) { out_.append(reinterpret_cast<const char*>(data_) + from, to - from); }

  // Copies the message in [at, end), with what is inside it cut.
  void message(Message kind, size_t at, size_t end, int depth) {
    if (depth > kMaxDepth) broken(at, "messages are nested too deeply");
    while (at < end) {
      const size_t start = at;
      const uint64_t tag = varint(at, end);
      if (tag >> 3 == 0 || tag >> 3 > 0x1fffffff) broken(start, "a field has no valid number");
      const auto field = static_cast<uint32_t>(tag >> 3);
      switch (tag & 7) {
        case 0:
          varint(at, end);
          copy(start, at);
          break;
        case 1:
        case 5: {
          const size_t size = (tag & 7) == 1 ? 8 : 4;
          if (size > end - at) broken(start, "a field runs past the end");
          at += size;
          copy(start, at);
          break;
        }
        case 2: {
          const uint64_t size = varint(at, end);
          if (size > end - at) broken(start, "a field is longer than what holds it");
          delimited(kind, field, start, at, at + size, depth);
          at += size;
          break;
        }
        default:
          broken(start, "a field has an unknown wire type");
      }
    }
  }

  void delimited(Message kind, uint32_t field, size_t start, size_t at, size_t end, int depth) {
    const size_t size = end - at;
    if (kind == Message::Model && field == kTrainingInfo) return;
    if (kind == Message::Tensor && field == kRawData && size >= kCutFrom) return note(at, size);
    const Message inner = child(kind, field);
    if (inner == Message::None || size < kCutFrom) return copy(start, end);
    // The length is only known afterwards: leave room for a varint of five bytes, padded.
    put_varint(field << 3 | 2);
    const size_t length_at = out_.size();
    out_.append(5, '\0');
    message(inner, at, end, depth + 1);
    uint64_t length = out_.size() - length_at - 5;
    if (length > INT32_MAX) broken(at, "more than 2 GB are left without the weights");
    for (int i = 0; i < 5; i++, length >>= 7)
      out_[length_at + static_cast<size_t>(i)] = static_cast<char>((length & 0x7f) | (i < 4 ? 0x80 : 0));
  }

  void note(size_t offset, size_t size) {
    std::string rest = std::exchange(out_, {});
    put_varint(1 << 3);
    put_varint(~static_cast<uint64_t>(offset));
    put_varint(2 << 3);
    put_varint(size);
    std::string segment = std::exchange(out_, std::move(rest));
    put_varint(kSegment << 3 | 2);
    put_varint(segment.size());
    out_ += segment;
  }

  const uint8_t* data_;
  std::span<const std::byte> file_;
  std::string out_;
};

}  // namespace

std::string cut_raw_data(std::span<const std::byte> file) { return Cutter(file).run(); }

std::optional<RawRange> cut_range(int64_t segment_begin, int64_t segment_end) {
  if (segment_begin >= 0) return std::nullopt;
  return RawRange{~segment_begin, segment_end};
}

}  // namespace ingot
