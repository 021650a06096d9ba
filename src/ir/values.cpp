#include "ir/values.h"

#include <charconv>
#include <cstring>
#include <limits>

#include "base/checked.h"

namespace ingot {
namespace {

int hex_digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

std::optional<int64_t> parse_int(const std::string& text) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Integers, floats and words can be told apart by their look; in quotes everything is a string.
Attribute scalar(const IrTree& t) {
  if (t.quoted) return t.text;
  if (auto i = parse_int(t.text)) return *i;
  if (auto f = ir_float<float>(t.text)) return *f;
  if (!t.text.empty() && (std::isdigit(static_cast<unsigned char>(t.text[0])) || t.text[0] == '-' || t.text[0] == '.'))
    t.fail("'{}' is neither an integer nor a float; a string needs quotes", t.text);
  return t.text;
}

template <class T>
std::vector<T> list_of(const IrTree& list, const char* kind) {
  std::vector<T> out;
  out.reserve(list.items.size());
  for (const IrTree& t : list.items) {
    Attribute a = t.kind == IrTree::Scalar ? scalar(t) : Attribute(ir_string(t));
    if (auto* v = std::get_if<T>(&a))
      out.push_back(std::move(*v));
    else
      t.fail("'{}' in a list of {}", t.text, kind);
  }
  return out;
}

Attribute list(const IrTree& t) {
  if (t.items.empty()) t.fail("an empty list has no kind: write {{ints: []}}, {{floats: []}} or {{strings: []}}");
  const IrTree& first = t.items[0];
  const Attribute kind = first.kind == IrTree::Scalar ? scalar(first) : Attribute(std::string());
  if (std::holds_alternative<int64_t>(kind)) return list_of<int64_t>(t, "integers");
  if (std::holds_alternative<float>(kind)) return list_of<float>(t, "floats");
  return list_of<std::string>(t, "strings");
}

template <class T>
void put(std::byte* data, size_t i, T value) {
  std::memcpy(data + i * sizeof(T), &value, sizeof(T));
}

template <class T>
void put_int(std::byte* data, size_t i, const IrTree& t) {
  const int64_t v = t.integer();
  if (v < static_cast<int64_t>(std::numeric_limits<T>::min()) ||
      v > static_cast<int64_t>(std::numeric_limits<T>::max()))
    t.fail("{} does not fit its element type", v);
  put(data, i, static_cast<T>(v));
}

template <class T>
void put_float(std::byte* data, size_t i, const IrTree& t) {
  auto v = t.kind == IrTree::Scalar && !t.quoted ? ir_float<T>(t.text) : std::nullopt;
  if (!v) t.fail("'{}' is not a float; a float has a point or an exponent", t.text);
  put(data, i, *v);
}

void put_bool(std::byte* data, size_t i, const IrTree& t) {
  if (t.kind != IrTree::Scalar || (t.text != "true" && t.text != "false")) t.fail("'{}' is not true or false", t.text);
  put<uint8_t>(data, i, t.text == "true");
}

using Put = void (*)(std::byte*, size_t, const IrTree&);
Put putter(DType dtype) {
  switch (dtype) {
    case DType::I64:
      return put_int<int64_t>;
    case DType::I32:
      return put_int<int32_t>;
    case DType::I16:
      return put_int<int16_t>;
    case DType::I8:
      return put_int<int8_t>;
    case DType::U8:
      return put_int<uint8_t>;
    case DType::U16:
      return put_int<uint16_t>;
    case DType::U32:
      return put_int<uint32_t>;
    case DType::F32:
      return put_float<float>;
    case DType::F64:
      return put_float<double>;
    case DType::Bool:
      return put_bool;
    default:
      return nullptr;
  }
}

}  // namespace

std::string ir_string(const IrTree& t) {
  if (t.kind != IrTree::Map) return t.name();
  t.only({"bytes"});
  const std::string& hex = t.need("bytes").name();
  if (hex.size() % 2) t.fail("bytes are pairs of hexadecimal digits");
  std::string out;
  for (size_t i = 0; i < hex.size(); i += 2) {
    const int high = hex_digit(hex[i]), low = hex_digit(hex[i + 1]);
    if (high < 0 || low < 0) t.fail("bytes are pairs of hexadecimal digits");
    out.push_back(static_cast<char>(high * 16 + low));
  }
  return out;
}

template <class T>
std::optional<T> ir_float(const std::string& text) {
  if (text == ".inf") return std::numeric_limits<T>::infinity();
  if (text == "-.inf") return -std::numeric_limits<T>::infinity();
  if (text == ".nan") return std::numeric_limits<T>::quiet_NaN();
  if (text.find_first_of(".e") == std::string::npos || text.find_first_not_of("0123456789+-.e") != std::string::npos)
    return std::nullopt;
  T value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}
template std::optional<float> ir_float<float>(const std::string&);
template std::optional<double> ir_float<double>(const std::string&);

Attribute ir_attribute(const IrTree& t) {
  switch (t.kind) {
    case IrTree::Scalar:
      return scalar(t);
    case IrTree::List:
      return list(t);
    case IrTree::Map:
      if (t.find("bytes")) return ir_string(t);
      t.only({"ints", "floats", "strings"});
      if (t.keys.size() != 1) t.fail("one of ints, floats, strings is expected");
      t.items[0].expect(IrTree::List);
      if (t.keys[0] == "ints") return list_of<int64_t>(t.items[0], "integers");
      if (t.keys[0] == "floats") return list_of<float>(t.items[0], "floats");
      return list_of<std::string>(t.items[0], "strings");
    default:
      t.fail("an attribute has no value");
  }
}

ConstantPtr ir_inline_constant(const IrTree& values, DType dtype, std::vector<int64_t> dims) {
  values.expect(IrTree::List);
  int64_t elements = 1;
  for (int64_t d : dims) elements = checked_mul(elements, d);
  if (static_cast<int64_t>(values.items.size()) != elements)
    values.fail("{} elements for a shape of {}", values.items.size(), elements);
  if (dtype == DType::String) {
    auto c = std::make_shared<Constant>();
    c->dtype = dtype;
    c->dims = std::move(dims);
    for (const IrTree& t : values.items) c->strings.push_back(ir_string(t));
    return c;
  }
  const Put put_element = putter(dtype);
  if (!put_element) values.fail("elements of type {} cannot be written in place", name(dtype));
  std::byte* data = nullptr;
  ConstantPtr c = make_constant(dtype, std::move(dims), &data);
  for (size_t i = 0; i < values.items.size(); i++) put_element(data, i, values.items[i]);
  return c;
}

}  // namespace ingot
