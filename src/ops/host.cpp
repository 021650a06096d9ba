#include "ops/host.h"

#include "kernels/number.h"

namespace ingot {
std::vector<int64_t> integer_elements(const Constant& c) {
  if (!is_integer(c.dtype) && c.dtype != DType::Bool) invalid_input("integers are needed, got {}", name(c.dtype));
  if (const int width = bits(c.dtype); width < 8) {  // the first in the lowest bits of a byte
    const auto bytes = c.as<uint8_t>();
    std::vector<int64_t> out;
    for (int64_t i = 0; i < c.elements(); i++) {
      const int64_t v = bytes[static_cast<size_t>(i * width / 8)] >> (i * width % 8) & ((1 << width) - 1);
      out.push_back(is_signed(c.dtype) && v >> (width - 1) ? v - (int64_t{1} << width) : v);
    }
    return out;
  }
  return kernel::with_number_type(static_cast<int64_t>(c.dtype), [&]<class T>() {
    std::vector<int64_t> out;
    for (T v : c.as<T>()) out.push_back(static_cast<int64_t>(kernel::widen(v)));
    return out;
  });
}

ConstantPtr with_dims(const ConstantPtr& c, std::vector<int64_t> dims) {
  auto out = std::make_shared<Constant>(*c);
  out->dims = std::move(dims);
  out->owner = c;
  return out;
}

int64_t element_bytes(const Constant& c) {
  if (bits(c.dtype) % 8 != 0)
    fail(ErrorKind::Unsupported, "elements of type {} are smaller than a byte", name(c.dtype));
  return bits(c.dtype) / 8;
}

const Value& HostContext::in(size_t i) const {
  if (!given(i)) fail("operand {} is missing", i);
  return inputs_[i];
}

const ConstantPtr& HostContext::tensor(size_t i) const {
  if (!in(i).is_tensor()) fail("operand {} is {}, not a tensor", i, in(i).is_none() ? "nothing" : "a sequence");
  return in(i).tensor_ptr();
}

const std::vector<Value>& HostContext::sequence(size_t i) const {
  if (!in(i).is_sequence()) fail("operand {} is {}, not a sequence", i, in(i).is_none() ? "nothing" : "a tensor");
  return in(i).items();
}

std::vector<int64_t> HostContext::integers(size_t i) const {
  if (!is_integer(tensor(i)->dtype) && tensor(i)->dtype != DType::Bool)
    fail("operand {} is {}, integers are needed", i, name(tensor(i)->dtype));
  return integer_elements(*tensor(i));
}

int64_t HostContext::integer(size_t i) const {
  const std::vector<int64_t> all = integers(i);
  if (all.size() != 1) fail("operand {} has {} elements, one is needed", i, all.size());
  return all[0];
}

double HostContext::number(size_t i) const {
  const Constant& c = *tensor(i);
  if (c.elements() != 1) fail("operand {} has {} elements, one is needed", i, c.elements());
  if (c.dtype == DType::F32) return static_cast<double>(c.as<float>()[0]);
  if (c.dtype == DType::F64) return c.as<double>()[0];
  return static_cast<double>(integer(i));
}

std::vector<std::string> HostContext::strings(size_t i) const {
  if (tensor(i)->dtype != DType::String) fail("operand {} is {}, strings are needed", i, name(tensor(i)->dtype));
  std::vector<std::string> out;
  for (int64_t id : tensor(i)->as<int64_t>()) out.push_back(pool_.get(id));
  return out;
}

int64_t HostContext::axis(int64_t value, int64_t rank) const {
  if (value < -rank || value >= rank) fail("axis {} is outside [{}, {})", value, -rank, rank);
  return value < 0 ? value + rank : value;
}

void HostContext::set_strings(size_t out, std::vector<int64_t> dims, const std::vector<std::string>& elements) {
  std::vector<int64_t> ids;
  for (const std::string& s : elements) ids.push_back(pool_.add(s));
  set(out, DType::String, std::move(dims), ids);
}

size_t own_inputs(const Node& node) { return node.inputs.size() - static_cast<size_t>(node.get_int("captures", 0)); }

OpDef host_op(std::string name, int min_inputs, int max_inputs, int max_outputs, void (*infer)(InferContext&),
              void (*run)(HostContext&)) {
  OpDef def;
  def.name = std::move(name);
  def.min_inputs = min_inputs;
  def.max_inputs = max_inputs;
  def.max_outputs = max_outputs;
  def.infer = infer;
  def.host = run;
  return def;
}

}  // namespace ingot
