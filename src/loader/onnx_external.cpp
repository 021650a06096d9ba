#include "loader/onnx_external.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/error.h"

namespace fs = std::filesystem;

namespace ingot {
namespace {

bool inside(const fs::path& path, const fs::path& folder) {
  auto [f, p] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return f == folder.end() && p != path.end();
}

// <root>/snapshots/<revision>/... -> <root>/blobs
std::optional<fs::path> blobs_of(const fs::path& folder) {
  for (fs::path p = folder; p.has_relative_path(); p = p.parent_path())
    if (p.filename() == "snapshots") return p.parent_path() / "blobs";
  return std::nullopt;
}

std::optional<std::string> find_in(const fs::path& folder, const std::string& location) {
  std::error_code missing;
  const fs::path base = fs::canonical(folder.empty() ? fs::path(".") : folder, missing);
  if (missing) return std::nullopt;
  const fs::path target = fs::canonical(base / location, missing);
  if (missing) return std::nullopt;
  const auto blobs = blobs_of(base);
  if (!inside(target, base) && !(blobs && inside(target, *blobs)))
    throw Error(ErrorKind::InvalidModel, fmt::format("external data '{}' is outside the model's folder", location),
                "put the data file beside the model");
  return target.string();
}

}  // namespace

std::string external_path(const std::string& model_path, const std::string& location) {
  const fs::path wanted(location);
  if (location.empty() || location.find('\0') != std::string::npos)
    invalid_model("external data has no valid location");
  if (wanted.is_absolute()) invalid_model("external data has the absolute location '{}'", location);
  if (std::find(wanted.begin(), wanted.end(), "..") != wanted.end() && *wanted.lexically_normal().begin() == "..")
    invalid_model("external data '{}' is outside the model's folder", location);

  const fs::path model(model_path);
  if (auto found = find_in(model.parent_path(), location)) return *found;
  // The model may be reached through a link while its data lies beside the real file.
  std::error_code failed;
  const fs::path real = fs::canonical(model, failed);
  if (!failed && real.parent_path() != model.parent_path())
    if (auto found = find_in(real.parent_path(), location)) return *found;
  throw Error(ErrorKind::Io, fmt::format("external data file '{}' is missing", location),
              "the data file must lie beside the model, under the name it was saved with");
}

}  // namespace ingot
