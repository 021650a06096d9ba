// Weights that live in a file instead of in memory: their pages become a private mapping of a file that has no name, so
// that nobody else can reach it. They stay where they are for whoever reads or writes them: what is read comes from the
// file, what is written stays in memory. The system takes the file away with the last mapping of it.
#pragma once

#include <cstddef>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace ingot::python {

struct MovedWeights {
  size_t bytes = 0;     // that live in a file now, or did so before
  std::string problem;  // why there are not more; "" if nothing speaks against it
};

// Moves the whole pages of large regions of this process's own memory into one file in the folder. `watched`: they are
// to be tracked (page_writes.h), so none is moved where the kernel cannot.
MovedWeights move_to_file(const std::vector<std::span<const std::byte>>& regions, const std::string& folder,
                          bool watched);

// The files with mappings, as /proc/self/maps names them: "fe:00 1234".
std::set<std::string> weight_files();

}  // namespace ingot::python
