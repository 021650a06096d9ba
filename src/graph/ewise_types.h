// Types of element-wise operators, for everything that builds or reads expressions. The operators themselves are the
// rows of kernels/ewise_ops.h.
#pragma once
#include <string>
#include <vector>

#include "base/dtype.h"

namespace ingot {

// The type `op` gives for arguments of these types; InvalidModel for an unknown operator, a wrong number of
// arguments or types it does not take.
DType ewise_result_type(const std::string& op, const std::vector<DType>& args);

}  // namespace ingot
