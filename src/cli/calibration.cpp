#include "cli/calibration.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "cli/npy.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {

std::string names_of(const std::vector<Port>& inputs) {
  std::string out;
  for (const Port& p : inputs) out += (out.empty() ? "" : ", ") + p.name;
  return out;
}

Value value_of(Array array) {
  auto keep = std::make_shared<Array>(std::move(array));
  auto c = std::make_shared<Constant>();
  c->dtype = keep->dtype;
  c->dims = keep->dims;
  c->bytes = keep->data;
  c->owner = keep;
  return ConstantPtr(c);
}

// One array for each input, in order.
std::vector<Array> by_name(NamedArrays arrays, const std::vector<Port>& inputs, const std::string& path) {
  std::vector<Array> out;
  for (const Port& port : inputs) {
    auto it = std::find_if(arrays.begin(), arrays.end(), [&](const auto& a) { return a.first == port.name; });
    // An array without a name, as numpy calls it, can only be the one input.
    if (it == arrays.end() && inputs.size() == 1 && arrays.size() == 1 && arrays[0].first == "arr_0")
      it = arrays.begin();
    if (it == arrays.end())
      throw Error(ErrorKind::InvalidInput, fmt::format("{}: no data for input '{}'", path, port.name),
                  "the model's inputs are " + names_of(inputs));
    out.push_back(std::move(it->second));
  }
  return out;
}

std::vector<Array> read_file_sample(const std::string& path, const std::vector<Port>& inputs) {
  if (path.ends_with(".npz")) return by_name(parse_npz(read_file(path), path), inputs, path);
  if (inputs.size() != 1)
    throw Error(ErrorKind::InvalidInput,
                fmt::format("{}: an .npy file holds one array, the model has {} inputs", path, inputs.size()),
                "write samples as .npz files with the inputs' names as keys: " + names_of(inputs));
  std::vector<Array> out;
  out.push_back(parse_npy(read_file(path), path));
  return out;
}

Samples from_folder(const std::string& folder, const std::vector<Port>& inputs) {
  std::vector<std::string> files;
  for (const std::string& name : names_in(folder))
    if (name.ends_with(".npz") || name.ends_with(".npy")) files.push_back((fs::path(folder) / name).string());
  std::sort(files.begin(), files.end());
  if (files.empty())
    throw Error(ErrorKind::InvalidInput, fmt::format("{}: holds no calibration data", folder),
                "it must hold .npz files, one for each sample, or .npy files");
  return {files.size(), [files, inputs](size_t i) {
            std::vector<Value> out;
            for (Array& a : read_file_sample(files.at(i), inputs)) out.push_back(value_of(std::move(a)));
            return out;
          }};
}

// Element i of the leading axis: as a batch of one where the model has a batch axis.
Array slice(const Array& all, size_t i, const Port& port) {
  Array one;
  one.dtype = all.dtype;
  one.dims.assign(all.dims.begin() + 1, all.dims.end());
  const size_t bytes = all.data.size() / static_cast<size_t>(all.dims[0]);
  one.data.assign(all.data.begin() + static_cast<long>(i * bytes),
                  all.data.begin() + static_cast<long>((i + 1) * bytes));
  if (port.shape && port.shape->size() == all.dims.size()) one.dims.insert(one.dims.begin(), 1);
  return one;
}

Samples from_file(const std::string& path, const std::vector<Port>& inputs) {
  auto all = std::make_shared<std::vector<Array>>(read_file_sample(path, inputs));
  int64_t count = -1;
  for (size_t i = 0; i < all->size(); i++) {
    const auto& dims = (*all)[i].dims;
    if (dims.empty() || (count >= 0 && dims[0] != count))
      throw Error(ErrorKind::InvalidInput,
                  fmt::format("{}: the array of input '{}' has no sample axis of the length of the others", path,
                              inputs[i].name),
                  "all arrays of one file have the samples along their first axis");
    count = dims[0];
  }
  return {static_cast<size_t>(std::max<int64_t>(count, 0)), [all, inputs](size_t s) {
            std::vector<Value> out;
            out.reserve(all->size());
            for (size_t i = 0; i < all->size(); i++) out.push_back(value_of(slice((*all)[i], s, inputs[i])));
            return out;
          }};
}

}  // namespace

Samples read_samples(const std::string& path, const std::vector<Port>& inputs, size_t most) {
  std::error_code error;
  if (!fs::exists(path, error))
    throw Error(ErrorKind::Io, path + ": there is no such file or folder", "--calib takes a folder or an .npz file");
  Samples samples = fs::is_directory(path, error) ? from_folder(path, inputs) : from_file(path, inputs);
  if (most > 0) samples.count = std::min(samples.count, most);
  return samples;
}

}  // namespace ingot
