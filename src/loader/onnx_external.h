// Where a model's external data lies, and whether the model may name that place.
#pragma once
#include <string>

namespace ingot {

// The file that `location` names for the model at `model_path`. It must be inside the model's folder once links are
// followed, or, as download caches lay files out, in the `blobs` folder beside the `snapshots` folder that holds the
// model. InvalidModel for a location that leaves the folder, Io for a file that is missing.
std::string external_path(const std::string& model_path, const std::string& location);

}  // namespace ingot
