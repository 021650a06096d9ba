#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "quantizer/facts.h"

namespace ingot {
namespace {

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

bool flag(const Json& json, const std::string& where) {
  if (!json.boolean()) bad(where, "expected a bool");
  return *json.boolean();
}

int64_t integer(const Json& json, const std::string& where) {
  if (!json.integer()) bad(where, "expected an integer");
  return *json.integer();
}

const std::string& text(const Json& json, const std::string& where, const char* expected) {
  if (!json.text()) bad(where, "expected {}", expected);
  return *json.text();
}

// known: the keys there may be; none: any.
const Json::Object& object(const Json& json, const std::string& where, std::initializer_list<const char*> known) {
  if (!json.object()) bad(where, "expected an object");
  for (const auto& [key, item] : *json.object())
    if (known.size() != 0 && std::none_of(known.begin(), known.end(), [&](const char* k) { return key == k; }))
      bad(where, "there is no '{}'", key);
  return *json.object();
}

template <class T>
std::vector<T> list(const Json& json, const std::string& where) {
  std::vector<T> out;
  for (const Json& item : json.array() ? *json.array() : Json::Array{Json()}) {
    if (std::is_floating_point_v<T> ? !item.is_number() : !item.integer())
      bad(where, "expected a list of {}", std::is_floating_point_v<T> ? "numbers" : "integers");
    out.push_back(static_cast<T>(item.integer() ? *item.integer() : item.number()));
  }
  return out;
}

TensorFacts tensor(const Json& json, const std::string& where) {
  object(json, where, {"dtype", "scale", "zero_point", "axis", "block", "dynamic", "everywhere", "result"});
  TensorFacts f;
  auto given = [&](const char* key, auto read) {
    if (const Json* value = json.find(key)) read(*value, where + "." + key);
  };
  auto read_flag = [](bool& to) { return [&to](const Json& v, const std::string& at) { to = flag(v, at); }; };
  auto read_integer = [](auto& to) { return [&to](const Json& v, const std::string& at) { to = integer(v, at); }; };
  given("dynamic", read_flag(f.dynamic));
  given("everywhere", read_flag(f.everywhere));
  given("result", read_flag(f.result));
  given("dtype", [&](const Json& v, const std::string& at) {
    std::string type = text(v, at, "the name of a type");
    if (!type.empty() && type[0] == 's') type[0] = 'i';
    const auto dtype = dtype_from_name(type);
    if (!dtype) bad(at, "'{}' is no type; u8, s8, u16, s16, u4 and s4 are", type);
    f.dtype = *dtype;
  });
  if (f.dynamic) return f;
  if (!json.find("scale")) bad(where, "has no scale, and is not dynamic");
  f.scale = list<float>(*json.find("scale"), where + ".scale");
  f.zero_point.assign(f.scale.size(), 0);
  given("zero_point", [&](const Json& v, const std::string& at) { f.zero_point = list<int32_t>(v, at); });
  given("axis", read_integer(f.axis));
  given("block", read_integer(f.block));
  if (f.block < 0) bad(where + ".block", "is {}", f.block);
  return f;
}

}  // namespace

std::string facts_json(const QuantizationFacts& facts) {
  Json json;
  for (const auto& [recipe, text] : kRecipes)
    if (facts.bias == recipe) json.set("bias", text);
  Json::Object tensors, nodes;
  for (const auto& [name, f] : facts.tensors) {
    Json t;
    t.set("dtype", type_name(f.dtype));
    if (f.dynamic) t.set("dynamic", true);
    if (!f.dynamic) t.set("scale", Json::list(std::vector<double>(f.scale.begin(), f.scale.end())));
    if (!f.dynamic) t.set("zero_point", Json::list(f.zero_point));
    if (f.axis) t.set("axis", *f.axis);
    if (f.block) t.set("block", f.block);
    if (f.everywhere) t.set("everywhere", true);
    if (f.result) t.set("result", true);
    tensors.emplace_back(name, std::move(t));
  }
  for (const auto& [name, f] : facts.nodes) nodes.emplace_back(name, Json::list(f.operands));
  json.set("tensors", std::move(tensors));
  json.set("nodes", std::move(nodes));
  return json.dump(1) + "\n";
}

QuantizationFacts facts_from_json(const std::string& given) {
  Json json;
  try {
    json = Json::parse(given);
  } catch (const Error& e) {
    throw e.at("facts");
  }
  object(json, "facts", {"bias", "tensors", "nodes"});
  QuantizationFacts facts;
  if (const Json* bias = json.find("bias")) {
    const std::string& wanted = text(*bias, "bias", "int32, fp32 or fp32-trailing");
    const auto recipe = bias_recipe_from_name(wanted);
    if (!recipe) bad("bias", "'{}' is not int32, fp32 or fp32-trailing", wanted);
    facts.bias = *recipe;
  }
  if (const Json* tensors = json.find("tensors"))
    for (const auto& [name, item] : object(*tensors, "tensors", {}))
      facts.tensors[name] = tensor(item, fmt::format("tensors.{}", name));
  if (const Json* nodes = json.find("nodes"))
    for (const auto& [name, item] : object(*nodes, "nodes", {}))
      facts.nodes[name].operands = list<size_t>(item, fmt::format("nodes.{}", name));
  return facts;
}

}  // namespace ingot
