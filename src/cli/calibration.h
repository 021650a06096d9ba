// Calibration data on disk: a folder of .npz files (one sample each, the inputs' names as keys) or of .npy files
// (models of one input), or one .npz file whose arrays have a sample axis in front.
#pragma once
#include <string>
#include <vector>

#include "compiler/library.h"
#include "quantizer/runner.h"

namespace ingot {

// Files are read when their sample is asked for. Errors name the file and the input. `most`: 0 takes all samples.
Samples read_samples(const std::string& path, const std::vector<Port>& inputs, size_t most = 0);

}  // namespace ingot
