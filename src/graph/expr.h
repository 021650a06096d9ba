// Element-wise expressions: what fused chains compute for each element. A straight-line program in which each
// instruction reads earlier ones. Text form, as in the IR:  "t0 = mul(x0, 0.5:f32); mul(t0, add(erf(x0), 1:f32))"
// x0, x1, ... are the node's operands ("acc" is another name for x0 in epilogues); several results are separated
// by " | ". Operators and types are those of kernels/ewise_ops.h. F16 and BF16 operands are F32 values inside.
#pragma once
#include <string>
#include <vector>

#include "base/dtype.h"

namespace ingot {

struct ExprInstr {
  enum Kind { kInput, kConstant, kCall } kind;
  DType dtype;            // of the value
  int input = 0;          // kInput
  double value = 0;       // kConstant; integers up to 2^53 exactly
  std::string op;         // kCall: a row of the table, "add", "cast_i64", ...
  std::vector<int> args;  // kCall: earlier instructions
};

struct Expr {
  std::vector<ExprInstr> code;
  std::vector<int> results;         // instruction of each result
  std::vector<DType> input_types;   // as stored in memory
  std::vector<DType> result_types;  // as stored in memory

  // Builders return the index of the new instruction; equal instructions are shared.
  int input(int i);
  int constant(double value, DType);
  int call(const std::string& op, std::vector<int> args);
  // Adds all of `other`, its input i replaced by instruction map[i]; returns the instructions of its results.
  std::vector<int> inline_expr(const Expr& other, const std::vector<int>& map);
  void remove_dead();
  // Only the text decides equality.
  std::string str() const;
};

// The type a value has inside an expression: F32 for F16 and BF16, otherwise itself.
DType value_type(DType stored);

// Parses the text form; InvalidModel with the position on anything malformed or ill-typed.
Expr parse_expr(const std::string& text, const std::vector<DType>& input_types,
                const std::vector<DType>& result_types = {});

}  // namespace ingot
