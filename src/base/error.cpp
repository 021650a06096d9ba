#include "base/error.h"

namespace ingot {

Error::Error(ErrorKind kind, std::string message, std::string hint)
    : kind_(kind), message_(std::move(message)), hint_(std::move(hint)), text_(message_) {
  if (!hint_.empty()) text_ += "\nhint: " + hint_;
}

Error out_of_memory() {
  return Error(ErrorKind::Resource, "out of memory", "smaller shapes or fewer threads need less");
}

}  // namespace ingot
