#include <llvm/Analysis/TargetTransformInfo.h>
#include <llvm/Bitcode/BitcodeReader.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Triple.h>
#include <llvm/Transforms/Utils/Cloning.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "base/error.h"
#include "codegen/codegen.h"
#include "codegen/hooks.h"

namespace ingot {

extern const unsigned char kernels_v2_bitcode[];
extern const size_t kernels_v2_bitcode_size;
extern const unsigned char kernels_v3_bitcode[];
extern const size_t kernels_v3_bitcode_size;
extern const unsigned char runtime_object[];
extern const size_t runtime_object_size;

namespace {

void initialise_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
  });
}

std::unique_ptr<llvm::TargetMachine> target_machine(IsaLevel level) {
  const llvm::Triple triple("x86_64-unknown-linux-gnu");
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target) fail(ErrorKind::Internal, "LLVM has no x86-64 target: {}", error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Fast;
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(triple, std::string(name(level)), "", options,
                                                                          llvm::Reloc::PIC_, llvm::CodeModel::Small,
                                                                          llvm::CodeGenOptLevel::Aggressive));
}

// Only what the entry reaches is read from the bitcode: the module holds all kernels of the level.
std::unique_ptr<llvm::Module> load_bitcode(llvm::LLVMContext& context, IsaLevel level) {
  const bool v3 = level == IsaLevel::V3;
  llvm::StringRef bytes(reinterpret_cast<const char*>(v3 ? kernels_v3_bitcode : kernels_v2_bitcode),
                        v3 ? kernels_v3_bitcode_size : kernels_v2_bitcode_size);
  auto module = llvm::getLazyBitcodeModule(llvm::MemoryBufferRef(bytes, "kernels"), context);
  if (!module) fail(ErrorKind::Internal, "the kernels' bitcode cannot be read: {}", llvm::toString(module.takeError()));
  return std::move(*module);
}

// Reads the bodies of `f` and of all it calls, and drops every other function.
void materialise_from(llvm::Module& m, llvm::Function* entry) {
  std::vector<llvm::Function*> work{entry};
  llvm::SmallPtrSet<llvm::Function*, 32> seen;
  while (!work.empty()) {
    llvm::Function* f = work.back();
    work.pop_back();
    if (!seen.insert(f).second) continue;
    if (llvm::Error e = f->materialize()) fail(ErrorKind::Internal, "bitcode: {}", llvm::toString(std::move(e)));
    for (auto& block : *f)
      for (auto& instruction : block)
        for (auto& operand : instruction.operands())
          if (auto* callee = llvm::dyn_cast<llvm::Function>(operand.get())) work.push_back(callee);
  }
  for (auto& f : llvm::make_early_inc_range(m)) {
    if (seen.contains(&f)) continue;
    f.replaceAllUsesWith(llvm::PoisonValue::get(f.getType()));
    f.eraseFromParent();
  }
  if (llvm::Error e = m.materializeMetadata()) fail(ErrorKind::Internal, "bitcode: {}", llvm::toString(std::move(e)));
}

// entry(call): the kernel called with a copy of the call whose parameters are constants where they are known.
llvm::Function* make_entry(llvm::Module& m, const KernelRequest& r) {
  llvm::LLVMContext& c = m.getContext();
  llvm::IRBuilder<> b(c);
  auto* ptr = b.getPtrTy();
  auto* i64 = b.getInt64Ty();
  llvm::Function* kernel = m.getFunction(r.kernel);
  if (!kernel) fail(ErrorKind::Internal, "there is no kernel {} in the bitcode", r.kernel);
  auto* call_type = llvm::StructType::get(c, {ptr, ptr, ptr, i64, i64, ptr});  // KernelCall
  auto* f = llvm::Function::Create(llvm::FunctionType::get(b.getInt32Ty(), {ptr}, false),
                                   llvm::GlobalValue::ExternalLinkage, r.symbol(), m);
  b.SetInsertPoint(llvm::BasicBlock::Create(c, "entry", f));
  auto* params_type = llvm::ArrayType::get(i64, r.params.size());
  llvm::Value* params = b.CreateAlloca(params_type);
  llvm::Value* call = b.CreateAlloca(call_type);
  llvm::Value* given = b.CreateLoad(ptr, b.CreateStructGEP(call_type, f->getArg(0), 1));
  for (size_t i = 0; i < r.params.size(); i++) {
    llvm::Value* v = r.known[i] ? static_cast<llvm::Value*>(b.getInt64(static_cast<uint64_t>(r.params[i])))
                                : b.CreateLoad(i64, b.CreateConstGEP1_64(i64, given, i));
    b.CreateStore(v, b.CreateConstGEP2_64(params_type, params, 0, i));
  }
  for (unsigned field = 0; field < 6; field++) {
    llvm::Type* type = call_type->getElementType(field);
    llvm::Value* v = field == 1 ? params : b.CreateLoad(type, b.CreateStructGEP(call_type, f->getArg(0), field));
    b.CreateStore(v, b.CreateStructGEP(call_type, call, field));
  }
  b.CreateRet(b.CreateCall(kernel, {call}));
  return f;
}

// One world: everything internal and inlined into the entry, compiled for the level.
void prepare(llvm::Module& m, llvm::Function* entry, IsaLevel level) {
  for (auto& f : m) {
    if (f.isDeclaration()) continue;
    f.addFnAttr("target-cpu", std::string(name(level)));
    f.removeFnAttr("target-features");
    f.removeFnAttr(llvm::Attribute::OptimizeNone);
    f.removeFnAttr("min-legal-vector-width");
    f.addFnAttr("prefer-vector-width", level == IsaLevel::V3 ? "256" : "128");
    f.setDSOLocal(true);
    if (&f == entry) continue;
    f.setLinkage(llvm::GlobalValue::InternalLinkage);
    f.setVisibility(llvm::GlobalValue::DefaultVisibility);
    f.setComdat(nullptr);
    if (!f.hasFnAttribute(llvm::Attribute::NoInline)) f.addFnAttr(llvm::Attribute::AlwaysInline);
  }
  for (auto& g : m.globals())
    if (!g.isDeclaration()) {
      g.setLinkage(llvm::GlobalValue::InternalLinkage);
      g.setComdat(nullptr);
    }
}

void optimise_module(llvm::Module& m, llvm::TargetMachine& machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager sccs;
  llvm::ModuleAnalysisManager modules;
  llvm::PipelineTuningOptions tuning;
  tuning.LoopUnrolling = true;
  tuning.LoopVectorization = false;  // kernels are vectorised by hand
  tuning.SLPVectorization = false;
  llvm::PassBuilder builder(&machine, tuning);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(sccs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, sccs, modules);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O3).run(m, modules);
}

std::string emit(llvm::Module& m, llvm::TargetMachine& machine, llvm::CodeGenFileType type) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, stream, nullptr, type)) fail(ErrorKind::Internal, "LLVM cannot emit objects");
  passes.run(m);
  return std::string(bytes.begin(), bytes.end());
}

// INGOT_DUMP=dir keeps the IR and assembly of every kernel.
void dump(llvm::Module& m, llvm::TargetMachine& machine, const KernelRequest& r) {
  const char* folder = std::getenv("INGOT_DUMP");
  if (!folder) return;
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  const std::string base = std::string(folder) + "/" + r.kernel + "_" + r.symbol().substr(8);
  std::string text;
  llvm::raw_string_ostream ir(text);
  ir << "; " << r.kernel << " expr: " << (r.expr ? r.expr->str() : "") << "\n; params:";
  for (size_t i = 0; i < r.params.size(); i++) ir << (r.known[i] ? " " + std::to_string(r.params[i]) : " ?");
  ir << "\n";
  m.print(ir, nullptr);
  std::ofstream(base + ".ll") << text;
  std::unique_ptr<llvm::Module> copy = llvm::CloneModule(m);
  std::ofstream(base + ".s") << emit(*copy, machine, llvm::CodeGenFileType::AssemblyFile);
}

}  // namespace

std::string compile_kernel(const KernelRequest& request, IsaLevel level) {
  initialise_llvm();
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module = load_bitcode(context, level);
  std::unique_ptr<llvm::TargetMachine> machine = target_machine(level);
  module->setDataLayout(machine->createDataLayout());
  module->setTargetTriple(machine->getTargetTriple());
  llvm::Function* entry = make_entry(*module, request);
  define_hooks(*module, request.kernel, request.expr ? *request.expr : parse_expr("acc", {DType::F32}));
  materialise_from(*module, entry);
  prepare(*module, entry, level);
  std::string problem;
  llvm::raw_string_ostream stream(problem);
  if (llvm::verifyModule(*module, &stream)) fail(ErrorKind::Internal, "kernel {}: {}", request.kernel, problem);
  optimise_module(*module, *machine);
  dump(*module, *machine, request);
  return emit(*module, *machine, llvm::CodeGenFileType::ObjectFile);
}

std::string_view runtime_object_bytes() { return {reinterpret_cast<const char*>(runtime_object), runtime_object_size}; }

std::string llvm_version() { return LLVM_VERSION_STRING; }

}  // namespace ingot
