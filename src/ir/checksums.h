// The checksums of an IR's weights, compared on all cores: hashing runs at the speed of memory.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "ir/tree.h"

namespace ingot {

struct Checksum {
  std::span<const std::byte> bytes;
  const IrTree* expected;  // where the file states it
};

// InvalidModel naming the line of the first one that does not fit.
void verify_checksums(const std::vector<Checksum>&);

}  // namespace ingot
