// JSON: a value, read from text and written as text. Its destructor needs no memory: out of memory is an error here,
// not the end of the process.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace ingot {

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;  // in the order written

  Json() = default;  // null
  Json(bool v) : value_(v) {}
  template <class T>
    requires(std::is_integral_v<T> && !std::is_same_v<T, bool>)
  Json(T v) : value_(static_cast<int64_t>(v)) {}
  Json(double v) : value_(v) {}
  Json(const char* v) : value_(std::string(v)) {}
  Json(std::string v) : value_(std::move(v)) {}
  Json(Array v) : value_(std::move(v)) {}
  Json(Object v) : value_(std::move(v)) {}
  template <class T>
  static Json list(const std::vector<T>& items) {
    return Array(items.begin(), items.end());
  }

  // InvalidInput, with the place, for text that is not JSON or is nested more than 64 deep.
  static Json parse(std::string_view text);
  // Null is written for numbers that JSON has not, U+FFFD for bytes that are no UTF-8.
  std::string dump(int indent) const;

  // Null where it is something else.
  const bool* boolean() const { return std::get_if<bool>(&value_); }
  const int64_t* integer() const { return std::get_if<int64_t>(&value_); }
  const std::string* text() const { return std::get_if<std::string>(&value_); }
  const Array* array() const { return std::get_if<Array>(&value_); }
  const Object* object() const { return std::get_if<Object>(&value_); }
  bool is_number() const { return integer() || std::holds_alternative<double>(value_); }
  double number() const { return integer() ? static_cast<double>(*integer()) : std::get<double>(value_); }
  // The value of a key; null where there is none.
  const Json* find(std::string_view key) const;

  // Of an object, an array.
  Json& set(std::string key, Json value);
  Json& add(Json value);

 private:
  void write(std::string& out, int indent, int depth) const;
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

}  // namespace ingot
