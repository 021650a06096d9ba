#include "planner/program.h"

#include <bit>

#include "base/error.h"
#include "kernels/ewise_ops.h"
#include "planner/plan.h"

namespace ingot {
namespace {

struct OwnedProgram : ExprProgram {
  std::vector<ProgramInstr> instructions;
  std::vector<int32_t> result_registers, stored_types;
};

int64_t constant_bits(const ExprInstr& in) {
  if (in.dtype == DType::F32) return std::bit_cast<int32_t>(static_cast<float>(in.value));
  if (in.dtype == DType::F64) return std::bit_cast<int64_t>(in.value);
  return static_cast<int64_t>(in.value);
}

EwiseChunkFn chunk_function(const std::string& op, DType dtype, const Target& target) {
  using Find = const EwiseKernel* (*)(const char*, int32_t);
  const auto find = reinterpret_cast<Find>(native(ingot_find_ewise_kernel, target));
  const EwiseKernel* k = find(op.c_str(), static_cast<int32_t>(dtype));
  if (!k) fail(ErrorKind::Internal, "element-wise operator '{}' has no kernel for {}", op, name(dtype));
  return k->apply;
}

}  // namespace

std::shared_ptr<const ExprProgram> make_program(const Expr& e, const Target& target) {
  if (e.code.size() > kMaxProgramLength)
    fail(ErrorKind::Unsupported, "an expression of {} instructions is longer than {}", e.code.size(),
         kMaxProgramLength);
  auto p = std::make_shared<OwnedProgram>();
  for (const ExprInstr& in : e.code) {
    ProgramInstr out{};
    out.kind = in.kind;
    out.input = in.input;
    out.bytes = bits(in.dtype) / 8;
    if (in.kind == ExprInstr::kInput) out.stored = static_cast<int32_t>(e.input_types[static_cast<size_t>(in.input)]);
    if (in.kind == ExprInstr::kConstant) out.constant = constant_bits(in);
    if (in.kind == ExprInstr::kCall) {
      for (size_t a = 0; a < in.args.size(); a++) out.arg[a] = in.args[a];
      out.apply = chunk_function(in.op, e.code[static_cast<size_t>(in.args.back())].dtype, target);
    }
    p->instructions.push_back(out);
  }
  for (size_t r = 0; r < e.results.size(); r++) {
    p->result_registers.push_back(e.results[r]);
    p->stored_types.push_back(static_cast<int32_t>(e.result_types[r]));
  }
  p->code = p->instructions.data();
  p->length = static_cast<int64_t>(p->instructions.size());
  p->results = p->result_registers.data();
  p->result_types = p->stored_types.data();
  p->result_count = static_cast<int64_t>(p->result_registers.size());
  return p;
}

}  // namespace ingot
