// Data for the inputs of a model: from files by name or order, or random.
#include <cstring>
#include <random>

#include "base/checked.h"
#include "base/error.h"
#include "cli/model.h"
#include "cli/terminal.h"

namespace ingot {
namespace {

std::string names_of(const std::vector<Port>& ports) {
  std::string out;
  for (const Port& p : ports) out += (out.empty() ? "" : ", ") + describe(p);
  return out;
}

// Floats are normal; integers 0 or 1, which is an index into anything; bytes are any byte.
template <class T>
void fill(std::vector<std::byte>& data, std::mt19937_64& random) {
  auto* p = reinterpret_cast<T*>(data.data());
  const size_t n = data.size() / sizeof(T);
  if constexpr (std::is_floating_point_v<T>) {
    std::normal_distribution<T> normal;
    for (size_t i = 0; i < n; i++) p[i] = normal(random);
  } else {
    const uint64_t mask = sizeof(T) == 1 && std::is_same_v<T, uint8_t> ? 0xff : 1;
    for (size_t i = 0; i < n; i++) p[i] = static_cast<T>(random() & mask);
  }
}

// The upper half of a float, or a half float: both keep their sign, and small numbers are enough.
void fill_16(std::vector<std::byte>& data, std::mt19937_64& random, DType dtype) {
  std::normal_distribution<float> normal;
  for (size_t i = 0; i + 2 <= data.size(); i += 2) {
    const float f = normal(random);
    const auto h = static_cast<_Float16>(f);
    uint16_t bits16 = 0;
    std::memcpy(&bits16, &h, 2);
    if (dtype == DType::BF16) {
      uint32_t wide = 0;
      std::memcpy(&wide, &f, 4);
      bits16 = static_cast<uint16_t>(wide >> 16);
    }
    std::memcpy(data.data() + i, &bits16, 2);
  }
}

Array random_array(const Port& port, const std::vector<int64_t>& dims, std::mt19937_64& random) {
  Array a{port.dtype, dims, {}};
  int64_t elements = 1;
  for (int64_t d : dims) elements = checked_mul(elements, d);
  a.data.resize(static_cast<size_t>(byte_size(a.dtype, elements)));
  switch (a.dtype) {
    case DType::F32:
      fill<float>(a.data, random);
      break;
    case DType::F64:
      fill<double>(a.data, random);
      break;
    case DType::F16:
    case DType::BF16:
      fill_16(a.data, random, a.dtype);
      break;
    case DType::I64:
    case DType::U64:
      fill<int64_t>(a.data, random);
      break;
    case DType::I32:
    case DType::U32:
      fill<int32_t>(a.data, random);
      break;
    case DType::I16:
    case DType::U16:
      fill<int16_t>(a.data, random);
      break;
    case DType::U8:
      fill<uint8_t>(a.data, random);
      break;
    case DType::I8:
    case DType::Bool:
      fill<int8_t>(a.data, random);
      break;
    default:
      unsupported("input '{}': no random data of type {}", port.name, name(a.dtype));
  }
  return a;
}

std::vector<int64_t> shape_for(const Port& port, const std::map<std::string, std::vector<int64_t>>& shapes) {
  const auto given = shapes.find(port.name);
  if (given == shapes.end() && !port.shape)
    throw Error(ErrorKind::InvalidInput, fmt::format("the shape of input '{}' is not known", port.name),
                fmt::format("give it: --shape {}:1x128", port.name));
  if (given != shapes.end() && port.shape && given->second.size() != port.shape->size())
    throw Error(ErrorKind::InvalidInput, fmt::format("--shape gives input '{}' {} dims, it has {}", port.name,
                                                     given->second.size(), port.shape->size()));
  const size_t rank = given != shapes.end() ? given->second.size() : port.shape->size();
  std::vector<int64_t> dims;
  bool guessed = false;
  for (size_t i = 0; i < rank; i++) {
    const bool fixed = given != shapes.end() && given->second[i] >= 0;
    const bool known = port.shape && (*port.shape)[i].is_const();
    guessed = guessed || (!fixed && !known);
    dims.push_back(fixed ? given->second[i] : known ? (*port.shape)[i].value() : 1);
  }
  if (guessed)
    print_note(
        fmt::format("{}: dims that are not fixed are taken as 1; --shape {}:... sets them", describe(port), port.name));
  return dims;
}

}  // namespace

void InputOptions::add_to(Command& app) {
  app.option("--input", files, "data.npy (inputs in order), name=data.npy, or data.npz").value_name("FILE");
  app.flag("--random", random, "random inputs: normal floats, integers 0 and 1");
  app.option("--seed", seed, "of the random inputs").shown_default("0");
}

std::vector<Array> InputOptions::read(const std::vector<Port>& ports,
                                      const std::map<std::string, std::vector<int64_t>>& shapes) const {
  auto index_of = [&](const std::string& name) {
    for (size_t i = 0; i < ports.size(); i++)
      if (ports[i].name == name) return static_cast<int>(i);
    return -1;
  };
  auto need = [&](const std::string& name, const std::string& where) {
    const int i = index_of(name);
    if (i < 0)
      throw Error(ErrorKind::InvalidInput, fmt::format("{}: the model has no input '{}'", where, name),
                  "its inputs are " + names_of(ports));
    return static_cast<size_t>(i);
  };
  for (const auto& [name, shape] : shapes) need(name, "--shape");

  std::vector<std::optional<Array>> found(ports.size());
  for (const std::string& file : files) {
    const size_t eq = file.find('=');
    const bool named = eq != std::string::npos && index_of(file.substr(0, eq)) >= 0;
    const std::string path = named ? file.substr(eq + 1) : file;
    if (path.ends_with(".npz") && !named) {
      for (auto& [name, array] : parse_npz(read_file(path), path)) found[need(name, path)] = std::move(array);
      continue;
    }
    size_t i = 0;
    if (named) {
      i = need(file.substr(0, eq), file);
    } else {
      while (i < ports.size() && found[i]) i++;
      if (i == ports.size())
        throw Error(ErrorKind::InvalidInput, fmt::format("--input {}: no input is left for it", file),
                    "the model's inputs are " + names_of(ports));
    }
    found[i] = parse_npy(read_file(path), path);
  }

  std::mt19937_64 generator(seed);
  std::vector<Array> out;
  for (size_t i = 0; i < ports.size(); i++) {
    if (!found[i] && !random)
      throw Error(ErrorKind::InvalidInput, fmt::format("no data for input '{}'", describe(ports[i])),
                  fmt::format("--input {}=FILE.npy, or --random", ports[i].name));
    out.push_back(found[i] ? std::move(*found[i]) : random_array(ports[i], shape_for(ports[i], shapes), generator));
  }
  return out;
}

}  // namespace ingot
