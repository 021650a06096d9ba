// TensorProto and SparseTensorProto -> Constant.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/file.h"
#include "graph/graph.h"

namespace onnx {
class TensorProto;
class SparseTensorProto;
}  // namespace onnx

namespace ingot {

// Reads the tensors of one model. Data in the model file or in external files is not copied, unless it is smaller than
// a page or not aligned for its element type.
class TensorReader {
 public:
  explicit TensorReader(std::shared_ptr<const FileContent> model) : model_(std::move(model)) {}

  // The proto must outlive the reader: a tensor read twice (functions are inlined many times) is made once.
  ConstantPtr read(const onnx::TensorProto&);
  ConstantPtr read(const onnx::SparseTensorProto&);  // dense, up to a limit

 private:
  ConstantPtr convert(const onnx::TensorProto&);
  ConstantPtr external(const onnx::TensorProto&, DType, std::vector<int64_t> dims);

  std::shared_ptr<const FileContent> model_;
  std::map<std::string, std::shared_ptr<const FileContent>> files_;  // by location
  std::unordered_map<const void*, ConstantPtr> done_;
};

}  // namespace ingot
