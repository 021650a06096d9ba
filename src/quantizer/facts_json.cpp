#include <nlohmann/json.hpp>

#include "base/error.h"
#include "quantizer/facts.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::pair<BiasRecipe, const char*> kRecipes[] = {
    {BiasRecipe::Int32, "int32"}, {BiasRecipe::Fp32, "fp32"}, {BiasRecipe::Fp32Trailing, "fp32-trailing"}};

// As the command line spells them: u8, s8, s4.
std::string type_name(DType t) {
  std::string text(name(t));
  if (text[0] == 'i') text[0] = 's';
  return text;
}

template <class... Args>
[[noreturn]] void bad(const std::string& where, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::InvalidInput, where + ": " + fmt::format(format, std::forward<Args>(args)...));
}

template <class T>
T value(const Json& json, const std::string& where, const char* expected) {
  try {
    return json.get<T>();
  } catch (const Json::exception&) {
    bad(where, "expected {}", expected);
  }
}

const Json& object(const Json& json, const std::string& where, std::initializer_list<const char*> known) {
  if (!json.is_object()) bad(where, "expected an object");
  for (const auto& [key, item] : json.items())
    if (known.size() != 0 && std::none_of(known.begin(), known.end(), [&](const char* k) { return key == k; }))
      bad(where, "there is no '{}'", key);
  return json;
}

template <class T>
std::vector<T> list(const Json& json, const std::string& where) {
  const bool numbers = json.is_array() && std::all_of(json.begin(), json.end(), [](const Json& item) {
                         return std::is_floating_point_v<T> ? item.is_number() : item.is_number_integer();
                       });
  if (!numbers) bad(where, "expected a list of {}", std::is_floating_point_v<T> ? "numbers" : "integers");
  return value<std::vector<T>>(json, where, "a list of numbers");
}

TensorFacts tensor(const Json& json, const std::string& where) {
  object(json, where, {"dtype", "scale", "zero_point", "axis", "block", "dynamic", "everywhere", "result"});
  TensorFacts f;
  auto flag = [&](const char* key) {
    return json.contains(key) && value<bool>(json[key], where + "." + key, "a bool");
  };
  f.dynamic = flag("dynamic");
  f.everywhere = flag("everywhere");
  f.result = flag("result");
  if (json.contains("dtype")) {
    std::string text = value<std::string>(json["dtype"], where + ".dtype", "the name of a type");
    if (!text.empty() && text[0] == 's') text[0] = 'i';
    const auto dtype = dtype_from_name(text);
    if (!dtype) bad(where + ".dtype", "'{}' is no type; u8, s8, u16, s16, u4 and s4 are", text);
    f.dtype = *dtype;
  }
  if (f.dynamic) return f;
  if (!json.contains("scale")) bad(where, "has no scale, and is not dynamic");
  f.scale = list<float>(json["scale"], where + ".scale");
  f.zero_point.assign(f.scale.size(), 0);
  if (json.contains("zero_point")) f.zero_point = list<int32_t>(json["zero_point"], where + ".zero_point");
  if (json.contains("axis")) f.axis = value<int64_t>(json["axis"], where + ".axis", "an integer");
  if (json.contains("block")) f.block = value<int64_t>(json["block"], where + ".block", "an integer");
  if (f.block < 0) bad(where + ".block", "is {}", f.block);
  return f;
}

}  // namespace

std::string facts_json(const QuantizationFacts& facts) {
  Json json;
  for (const auto& [recipe, text] : kRecipes)
    if (facts.bias == recipe) json["bias"] = text;
  json["tensors"] = Json::object();
  for (const auto& [name, f] : facts.tensors) {
    Json& t = json["tensors"][name];
    t["dtype"] = type_name(f.dtype);
    if (f.dynamic) t["dynamic"] = true;
    if (!f.dynamic) t["scale"] = f.scale;
    if (!f.dynamic) t["zero_point"] = f.zero_point;
    if (f.axis) t["axis"] = *f.axis;
    if (f.block) t["block"] = f.block;
    if (f.everywhere) t["everywhere"] = true;
    if (f.result) t["result"] = true;
  }
  json["nodes"] = Json::object();
  for (const auto& [name, f] : facts.nodes) json["nodes"][name] = f.operands;
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

QuantizationFacts facts_from_json(const std::string& text) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& e) {
    bad("facts", "not JSON: {}", e.what());
  }
  object(json, "facts", {"bias", "tensors", "nodes"});
  QuantizationFacts facts;
  if (json.contains("bias")) {
    const auto given = value<std::string>(json["bias"], "bias", "int32, fp32 or fp32-trailing");
    const auto recipe = bias_recipe_from_name(given);
    if (!recipe) bad("bias", "'{}' is not int32, fp32 or fp32-trailing", given);
    facts.bias = *recipe;
  }
  const Json none = Json::object();
  for (const auto& [name, item] : object(json.contains("tensors") ? json["tensors"] : none, "tensors", {}).items())
    facts.tensors[name] = tensor(item, fmt::format("tensors.{}", name));
  for (const auto& [name, item] : object(json.contains("nodes") ? json["nodes"] : none, "nodes", {}).items())
    facts.nodes[name].operands = list<size_t>(item, fmt::format("nodes.{}", name));
  return facts;
}

}  // namespace ingot
