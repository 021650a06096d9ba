#include "base/error.h"

namespace ingot {

Error::Error(ErrorKind kind, std::string message, std::string hint)
    : kind_(kind), message_(std::move(message)), hint_(std::move(hint)), text_(message_) {
  if (!hint_.empty()) text_ += "\nhint: " + hint_;
}

}  // namespace ingot
