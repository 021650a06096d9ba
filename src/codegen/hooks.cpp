#include "codegen/hooks.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <bit>
#include <cstddef>

#include "base/error.h"
#include "kernels/ewise.h"

namespace ingot {
namespace {

// Builds one hook: values live in stack slots, which inlining turns into registers.
class HookBuilder {
 public:
  HookBuilder(llvm::Module& m, llvm::Function* f, const Expr& e, const Target& target)
      : m_(m), e_(e), slot_bytes_(8 * static_cast<uint64_t>(target.lanes)), b_(m.getContext()) {
    f->setLinkage(llvm::GlobalValue::InternalLinkage);
    b_.SetInsertPoint(llvm::BasicBlock::Create(m.getContext(), "entry", f));
    for (size_t i = 0; i < e.code.size(); i++) slots_.push_back(slot());
  }

  llvm::IRBuilder<>& ir() { return b_; }
  llvm::Value* slot_of(int instr) { return slots_[static_cast<size_t>(instr)]; }
  llvm::Value* i64(int64_t v) { return b_.getInt64(static_cast<uint64_t>(v)); }

  void call(const std::string& symbol, std::vector<llvm::Value*> args) {
    llvm::Function* callee = m_.getFunction(symbol);
    if (!callee) fail(ErrorKind::Internal, "there is no function {} in the kernels' bitcode", symbol);
    b_.CreateCall(callee, args);
  }

  // Constants and calls; inputs are loaded by the caller's function.
  template <class LoadInput>
  void body(LoadInput load) {
    for (size_t i = 0; i < e_.code.size(); i++) {
      const ExprInstr& in = e_.code[i];
      if (in.kind == ExprInstr::kInput) {
        load(in.input, slots_[i]);
      } else if (in.kind == ExprInstr::kConstant) {
        constant(in, slots_[i]);
      } else {
        std::vector<llvm::Value*> args;
        for (int a : in.args) args.push_back(slot_of(a));
        args.push_back(slots_[i]);
        DType type = in.args.empty() ? in.dtype : e_.code[static_cast<size_t>(in.args.back())].dtype;
        call("ingot_op_" + in.op + "_" + std::string(name(type)), args);
      }
    }
  }

  // Room for a vector of any elements.
  llvm::Value* slot() {
    auto* a = b_.CreateAlloca(llvm::ArrayType::get(b_.getInt8Ty(), slot_bytes_));
    a->setAlignment(llvm::Align(slot_bytes_));
    return a;
  }

 private:
  void constant(const ExprInstr& in, llvm::Value* out) {
    llvm::Value* cell = b_.CreateAlloca(b_.getInt64Ty());
    int64_t bits = 0;
    if (in.dtype == DType::F32)
      bits = std::bit_cast<int32_t>(static_cast<float>(in.value));
    else if (in.dtype == DType::F64)
      bits = std::bit_cast<int64_t>(in.value);
    else
      bits = static_cast<int64_t>(in.value);
    b_.CreateStore(i64(bits), cell);
    call("ingot_load_" + std::string(name(in.dtype)), {cell, i64(0), i64(0), i64(1), i64(0), i64(0), out});
  }

  llvm::Module& m_;
  const Expr& e_;
  uint64_t slot_bytes_;  // a vector of the widest elements
  llvm::IRBuilder<> b_;
  std::vector<llvm::Value*> slots_;
};

// The values of an epilogue, whose arguments extra, strides, row, col, lanes stand from `first` on.
void epilogue_body(HookBuilder& h, llvm::Function* f, const Expr& e, unsigned first) {
  auto& b = h.ir();
  llvm::Value *acc = f->getArg(0), *extra = f->getArg(first), *strides = f->getArg(first + 1),
              *row = f->getArg(first + 2), *col = f->getArg(first + 3), *lanes = f->getArg(first + 4);
  h.body([&](int input, llvm::Value* out) {
    if (input == 0) {
      b.CreateStore(acc, out);
      return;
    }
    const auto k = static_cast<uint64_t>(input - 1);
    llvm::LoadInst* base = b.CreateLoad(b.getPtrTy(), b.CreateConstGEP1_64(b.getPtrTy(), extra, k));
    // Results may be bytes, which may alias anything: without this the pointer would be read for every vector.
    base->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(b.getContext(), {}));
    llvm::Value* row_stride = b.CreateLoad(b.getInt64Ty(), b.CreateConstGEP1_64(b.getInt64Ty(), strides, 2 * k));
    llvm::Value* col_stride = b.CreateLoad(b.getInt64Ty(), b.CreateConstGEP1_64(b.getInt64Ty(), strides, 2 * k + 1));
    llvm::Value* offset = b.CreateAdd(b.CreateMul(row, row_stride), b.CreateMul(col, col_stride));
    h.call("ingot_load_" + std::string(name(e.input_types[static_cast<size_t>(input)])),
           {base, offset, h.i64(0), lanes, col_stride, h.i64(1), out});
  });
}

// VF epilogue(VF acc, void* const* extra, const EpilogueOperand* strides, i64 row, i64 col, i64 lanes, program)
void define_epilogue(llvm::Module& m, llvm::Function* f, const Expr& e, const Target& target) {
  HookBuilder h(m, f, e, target);
  epilogue_body(h, f, e, 1);
  h.ir().CreateRet(h.ir().CreateLoad(f->getReturnType(), h.slot_of(e.results.at(0))));
}

// void store(VI acc, void* out, i64 at, void* const* extra, ... as above)
void define_store(llvm::Module& m, llvm::Function* f, const Expr& e, const Target& target) {
  HookBuilder h(m, f, e, target);
  epilogue_body(h, f, e, 3);
  h.call("ingot_store_" + std::string(name(e.result_types.at(0))),
         {f->getArg(1), f->getArg(2), h.i64(0), f->getArg(7), h.i64(1), h.i64(1), h.slot_of(e.results.at(0))});
  h.ir().CreateRetVoid();
}

// VI bytes(VI acc, void* const* extra, ... as above): what is stored, as wide as the sums.
void define_bytes(llvm::Module& m, llvm::Function* f, const Expr& e, const Target& target) {
  HookBuilder h(m, f, e, target);
  epilogue_body(h, f, e, 1);
  const ExprInstr& last = e.code[static_cast<size_t>(e.results.at(0))];
  llvm::Value* wide = h.slot();
  if (last.kind == ExprInstr::kCall && last.op.starts_with("quantize_")) {
    const ExprInstr& zero = e.code[static_cast<size_t>(last.args[1])];
    const bool saturates = zero.kind == ExprInstr::kConstant && zero.value >= 0 && zero.dtype == DType::F32;
    h.call((saturates ? "ingot_saturated_" : "ingot_wide_") + last.op + "_" + std::string(name(zero.dtype)),
           {h.slot_of(last.args[0]), h.slot_of(last.args[1]), wide});
  } else {
    h.call("ingot_widen_" + std::string(name(e.result_types.at(0))), {h.slot_of(e.results.at(0)), wide});
  }
  h.ir().CreateRet(h.ir().CreateLoad(f->getReturnType(), wide));
}

// void ewise(void* const* operand, const i64* offset, const EwiseParams* p, i64 i, i64 lanes)
void define_ewise(llvm::Module& m, llvm::Function* f, const Expr& e, const Target& target) {
  HookBuilder h(m, f, e, target);
  auto& b = h.ir();
  llvm::Value *operands = f->getArg(0), *offsets = f->getArg(1), *params = f->getArg(2), *i = f->getArg(3),
              *lanes = f->getArg(4);
  auto* i64 = b.getInt64Ty();
  struct Place {
    llvm::Value *base, *offset, *kind, *step;
  };
  auto place = [&](uint64_t operand) {
    const uint64_t kind_at = offsetof(EwiseParams, inner_kind) / 8 + operand;
    const uint64_t stride_at = offsetof(EwiseParams, strides) / 8 + operand * kEwiseMaxRank;
    llvm::Value* rank = b.CreateLoad(i64, b.CreateConstGEP1_64(i64, params, offsetof(EwiseParams, rank) / 8));
    llvm::Value* inner = b.CreateAdd(b.CreateSub(rank, h.i64(1)), h.i64(static_cast<int64_t>(stride_at)));
    return Place{b.CreateLoad(b.getPtrTy(), b.CreateConstGEP1_64(b.getPtrTy(), operands, operand)),
                 b.CreateLoad(i64, b.CreateConstGEP1_64(i64, offsets, operand)),
                 b.CreateLoad(i64, b.CreateConstGEP1_64(i64, params, kind_at)),
                 b.CreateLoad(i64, b.CreateGEP(i64, params, inner))};
  };
  h.body([&](int input, llvm::Value* out) {
    Place p = place(static_cast<uint64_t>(input));
    h.call("ingot_load_" + std::string(name(e.input_types[static_cast<size_t>(input)])),
           {p.base, p.offset, i, lanes, p.kind, p.step, out});
  });
  for (size_t r = 0; r < e.results.size(); r++) {
    Place p = place(e.input_types.size() + r);
    h.call("ingot_store_" + std::string(name(e.result_types[r])),
           {p.base, p.offset, i, lanes, p.kind, p.step, h.slot_of(e.results[r])});
  }
  b.CreateRetVoid();
}

}  // namespace

void define_hooks(llvm::Module& m, const std::string& kernel, const Expr& e, const Target& target) {
  const auto define = [&](const char* name, auto* definition) {
    llvm::Function* f = m.getFunction(name);
    if (!f) fail(ErrorKind::Internal, "kernel {} has an expression but no hook", kernel);
    definition(m, f, e, target);
  };
  if (kernel.starts_with("ingot_ewise")) return define("ingot_hook_ewise", define_ewise);  // also ewise_reduce
  if (!kernel.starts_with("ingot_gemm_i8") && kernel != "ingot_depthwise_i8")
    return define("ingot_hook_epilogue", define_epilogue);
  define("ingot_hook_store", define_store);
  const DType result = e.result_types.at(0);
  if (result == DType::U8 || result == DType::I8) define("ingot_hook_bytes", define_bytes);
}

}  // namespace ingot
