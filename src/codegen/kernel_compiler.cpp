#include <llvm/Analysis/TargetTransformInfo.h>
#include <llvm/Bitcode/BitcodeReader.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/PassInstrumentation.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Triple.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/InstSimplifyPass.h>
#include <llvm/Transforms/Scalar/SROA.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>
#include <llvm/Transforms/Utils/Cloning.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <new>
#include <optional>

#include "base/error.h"
#include "codegen/codegen.h"
#include "codegen/embedded.h"
#include "codegen/hooks.h"

namespace ingot {

extern const unsigned char runtime_object[];
extern const size_t runtime_object_size;

namespace {

void initialise_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    // LLVM would otherwise end the process.
    llvm::install_bad_alloc_error_handler([](void*, const char*, bool) { throw std::bad_alloc(); });
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeX86AsmParser();  // kernels have inline assembly
  });
}

std::unique_ptr<llvm::TargetMachine> target_machine(const Target& for_target) {
  const llvm::Triple triple("x86_64-unknown-linux-gnu");
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target) fail(ErrorKind::Internal, "LLVM has no x86-64 target: {}", error);
  llvm::TargetOptions options;
  // What clang marked for contraction, as in the native builds: both round alike.
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard;
  return std::unique_ptr<llvm::TargetMachine>(
      target->createTargetMachine(triple, for_target.march, for_target.features, options, llvm::Reloc::PIC_,
                                  llvm::CodeModel::Small, llvm::CodeGenOptLevel::Aggressive));
}

// The module holds all kernels of the build; bodies are read when they are asked for.
std::unique_ptr<llvm::Module> load_bitcode(llvm::LLVMContext& context, const Target& target) {
  const llvm::StringRef bytes = kernel_bitcode()[static_cast<size_t>(target.build)];
  auto module = llvm::getLazyBitcodeModule(llvm::MemoryBufferRef(bytes, "kernels"), context);
  if (!module) fail(ErrorKind::Internal, "the kernels' bitcode cannot be read: {}", llvm::toString(module.takeError()));
  return std::move(*module);
}

// A structure on the entry's stack that is only read once it is filled: what its 8-byte fields hold is known.
struct KnownStruct {
  llvm::WeakTrackingVH address;  // gone once nothing needs the memory any more
  std::vector<llvm::WeakTrackingVH> fields;
};

// The kernel's entry, which calls it with a copy of the call whose parameters are constants where they are known.
struct Entry {
  llvm::Function* function;
  KnownStruct call, params;
};

Entry make_entry(llvm::Module& m, const KernelRequest& r) {
  llvm::LLVMContext& c = m.getContext();
  llvm::IRBuilder<> b(c);
  auto* ptr = b.getPtrTy();
  auto* i64 = b.getInt64Ty();
  llvm::Function* kernel = m.getFunction(r.kernel);
  if (!kernel) fail(ErrorKind::Internal, "there is no kernel {} in the bitcode", r.kernel);
  auto* call_type = llvm::StructType::get(c, {ptr, ptr, ptr, i64, i64, ptr, i64});  // KernelCall
  Entry e;
  e.function = llvm::Function::Create(llvm::FunctionType::get(b.getInt32Ty(), {ptr}, false),
                                      llvm::GlobalValue::ExternalLinkage, r.symbol, m);
  b.SetInsertPoint(llvm::BasicBlock::Create(c, "entry", e.function));
  auto* params_type = llvm::ArrayType::get(i64, r.params.size());
  e.params.address = b.CreateAlloca(params_type);
  e.call.address = b.CreateAlloca(call_type);
  llvm::Value* argument = e.function->getArg(0);
  llvm::Value* given = b.CreateLoad(ptr, b.CreateStructGEP(call_type, argument, 1));
  for (size_t i = 0; i < r.params.size(); i++) {
    llvm::Value* v = r.known[i] ? static_cast<llvm::Value*>(b.getInt64(static_cast<uint64_t>(r.params[i])))
                                : b.CreateLoad(i64, b.CreateConstGEP1_64(i64, given, i));
    b.CreateStore(v, b.CreateConstGEP2_64(params_type, e.params.address, 0, i));
    e.params.fields.emplace_back(v);
  }
  for (unsigned i = 0; i < call_type->getNumElements(); i++) {
    llvm::Type* type = call_type->getElementType(i);
    llvm::Value* v = i == 1 ? e.params.address : b.CreateLoad(type, b.CreateStructGEP(call_type, argument, i));
    b.CreateStore(v, b.CreateStructGEP(call_type, e.call.address, i));
    e.call.fields.emplace_back(v);
  }
  b.CreateRet(b.CreateCall(kernel, {e.call.address}));
  return e;
}

// Replaces loads of single fields by what the fields hold. Alias analysis would get there only after all is inlined.
void fold_fields(const KnownStruct& known, const llvm::DataLayout& layout) {
  std::vector<std::pair<llvm::Value*, uint64_t>> work;
  if (known.address) work.emplace_back(known.address, 0);
  while (!work.empty()) {
    auto [address, offset] = work.back();
    work.pop_back();
    for (llvm::User* user : llvm::make_early_inc_range(address->users())) {
      if (auto* gep = llvm::dyn_cast<llvm::GetElementPtrInst>(user)) {
        llvm::APInt more(64, 0);
        if (gep->getPointerOperand() == address && gep->accumulateConstantOffset(layout, more))
          work.emplace_back(gep, offset + more.getZExtValue());
      } else if (auto* load = llvm::dyn_cast<llvm::LoadInst>(user)) {
        if (offset % 8 != 0 || offset / 8 >= known.fields.size() || layout.getTypeSizeInBits(load->getType()) != 64)
          continue;
        llvm::Value* v = known.fields[offset / 8];
        if (v->getType() != load->getType()) {
          if (v->getType()->isPointerTy() || load->getType()->isPointerTy()) continue;
          v = llvm::IRBuilder<>(load).CreateBitCast(v, load->getType());
        }
        load->replaceAllUsesWith(v);
        load->eraseFromParent();
      }
    }
  }
}

void set_attributes(llvm::Function& f, const Target& target) {
  f.addFnAttr("target-cpu", target.march);
  f.removeFnAttr("target-features");
  // LLVM would take a vpdpwssd apart for a shorter chain, into two instructions, unless it is said to be fast.
  if (!target.features.empty())
    f.addFnAttr("target-features", std::string(target.features) + (target.adds_byte_products() ? ",+fast-dpwssd" : ""));
  f.removeFnAttr("min-legal-vector-width");
  f.addFnAttr("prefer-vector-width", target.bits);
  f.setDSOLocal(true);
}

void read_body(llvm::Function& f, const Target& target) {
  if (llvm::Error e = f.materialize()) fail(ErrorKind::Internal, "bitcode: {}", llvm::toString(std::move(e)));
  if (f.isDeclaration()) return;
  set_attributes(f, target);
  f.setLinkage(llvm::GlobalValue::InternalLinkage);
  f.setVisibility(llvm::GlobalValue::DefaultVisibility);
  f.setComdat(nullptr);
}

std::vector<llvm::CallBase*> calls_in(llvm::Function& f) {
  std::vector<llvm::CallBase*> out;
  for (auto& block : f)
    for (auto& instruction : block)
      if (auto* call = llvm::dyn_cast<llvm::CallBase>(&instruction))
        if (llvm::Function* callee = call->getCalledFunction(); callee && !callee->isIntrinsic()) out.push_back(call);
  return out;
}

// LLVM's passes and what they know, for one module.
class Optimiser {
 public:
  // stop: the remaining passes are skipped once it is true.
  Optimiser(llvm::TargetMachine& machine, const std::atomic<bool>* stop)
      : stop_(stop), builder_(&machine, tuning(), std::nullopt, &callbacks_) {
    if (stop)
      callbacks_.registerShouldRunOptionalPassCallback([stop](llvm::StringRef, llvm::Any) { return !stop->load(); });
    builder_.registerModuleAnalyses(modules_);
    builder_.registerCGSCCAnalyses(sccs_);
    builder_.registerFunctionAnalyses(functions_);
    builder_.registerLoopAnalyses(loops_);
    builder_.crossRegisterProxies(loops_, functions_, sccs_, modules_);
    simplify_.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
    simplify_.addPass(llvm::EarlyCSEPass());
    simplify_.addPass(llvm::InstSimplifyPass());
    simplify_.addPass(llvm::SimplifyCFGPass());
  }

  // Folds constants and drops dead code, after the function was changed by hand. Throws Stopped: without it every
  // instance of a template would be inlined.
  void simplify(llvm::Function& f) {
    if (stop_ && stop_->load()) throw Stopped();
    functions_.invalidate(f, llvm::PreservedAnalyses::none());
    simplify_.run(f, functions_);
    functions_.invalidate(f, llvm::PreservedAnalyses::none());
  }

  void optimise(llvm::Module& m) {
    builder_.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O3).run(m, modules_);
  }

 private:
  static llvm::PipelineTuningOptions tuning() {
    llvm::PipelineTuningOptions t;
    t.LoopUnrolling = true;
    t.LoopVectorization = false;  // kernels are vectorised by hand
    t.SLPVectorization = false;
    return t;
  }

  const std::atomic<bool>* stop_;
  llvm::LoopAnalysisManager loops_;
  llvm::FunctionAnalysisManager functions_;
  llvm::CGSCCAnalysisManager sccs_;
  llvm::ModuleAnalysisManager modules_;
  llvm::PassInstrumentationCallbacks callbacks_;
  llvm::PassBuilder builder_;
  llvm::FunctionPassManager simplify_;
};

// Inlines everything into the entry from the top down, one level of calls at a time, folding constants and dropping
// dead code in between: only what is still called then is read from the bitcode at all.
void inline_all(Entry& entry, const Target& target, Optimiser& optimiser) {
  set_attributes(*entry.function, target);
  std::vector<llvm::Function*> roots{entry.function};  // and what must not be inlined
  llvm::SmallPtrSet<llvm::Function*, 8> seen(roots.begin(), roots.end());
  for (size_t r = 0; r < roots.size(); r++)
    for (bool again = true; again;) {
      again = false;
      for (llvm::CallBase* call : calls_in(*roots[r])) {
        llvm::Function* callee = call->getCalledFunction();
        read_body(*callee, target);
        if (callee->isDeclaration()) continue;  // libm
        if (callee->hasFnAttribute(llvm::Attribute::NoInline)) {
          if (seen.insert(callee).second) roots.push_back(callee);
          continue;
        }
        llvm::InlineFunctionInfo info;
        if (!llvm::InlineFunction(*call, info).isSuccess())
          fail(ErrorKind::Internal, "{} cannot be inlined", callee->getName().str());
        again = true;
      }
      if (!again) break;
      if (r == 0)
        for (KnownStruct* known : {&entry.call, &entry.params})
          fold_fields(*known, entry.function->getParent()->getDataLayout());
      optimiser.simplify(*roots[r]);
    }
}

// The rest of the bitcode: functions that nobody calls any more.
void drop_unused(llvm::Module& m, llvm::Function* entry) {
  for (bool again = true; again;) {
    again = false;
    for (auto& f : llvm::make_early_inc_range(m))
      if (&f != entry && f.use_empty()) {
        f.eraseFromParent();
        again = true;
      }
  }
  for (auto& g : m.globals())
    if (!g.isDeclaration()) {
      g.setLinkage(llvm::GlobalValue::InternalLinkage);
      g.setComdat(nullptr);
    }
}

// What LLVM works on.
struct Workspace {
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module;
  std::unique_ptr<llvm::TargetMachine> machine;
  std::optional<Optimiser> optimiser;
  llvm::legacy::PassManager emission;
};

std::string emit_object(Workspace& w) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  if (w.machine->addPassesToEmitFile(w.emission, stream, nullptr, llvm::CodeGenFileType::ObjectFile))
    fail(ErrorKind::Internal, "LLVM cannot emit objects");
  w.emission.run(*w.module);
  return std::string(bytes.begin(), bytes.end());
}

// INGOT_DUMP=dir keeps the IR of every kernel, and its object: assembly printed from a copy of the module may differ
// from it in what is spilled.
void dump(const KernelRequest& r, const std::string& extension, const std::string& text) {
  const char* folder = std::getenv("INGOT_DUMP");
  if (!folder) return;
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  std::ofstream(std::string(folder) + "/" + r.kernel + "_" + r.symbol.substr(8) + extension, std::ios::binary) << text;
}

std::string ir_text(llvm::Module& m, const KernelRequest& r) {
  std::string text;
  llvm::raw_string_ostream ir(text);
  ir << "; " << r.kernel << " expr: " << (r.expr ? r.expr->str() : "") << "\n; params:";
  for (size_t i = 0; i < r.params.size(); i++) ir << (r.known[i] ? " " + std::to_string(r.params[i]) : " ?");
  ir << "\n";
  m.print(ir, nullptr);
  return text;
}

std::string compile_in(Workspace& w, const KernelRequest& request, const std::atomic<bool>* stop) {
  const Target& target = *request.target;
  w.module = load_bitcode(w.context, target);
  w.machine = target_machine(target);
  llvm::Module& module = *w.module;
  module.setDataLayout(w.machine->createDataLayout());
  module.setTargetTriple(w.machine->getTargetTriple());
  if (llvm::Error e = module.materializeMetadata())
    fail(ErrorKind::Internal, "bitcode: {}", llvm::toString(std::move(e)));
  Entry entry = make_entry(module, request);
  define_hooks(module, request.kernel, request.expr ? *request.expr : parse_expr("acc", {DType::F32}), target);
  w.optimiser.emplace(*w.machine, stop);
  inline_all(entry, target, *w.optimiser);
  drop_unused(module, entry.function);
  std::string problem;
  llvm::raw_string_ostream stream(problem);
  if (llvm::verifyModule(module, &stream)) fail(ErrorKind::Internal, "kernel {}: {}", request.kernel, problem);
  w.optimiser->optimise(module);
  if (stop && stop->load()) throw Stopped();
  if (std::getenv("INGOT_DUMP")) dump(request, ".ll", ir_text(module, request));
  const std::string object = emit_object(w);
  dump(request, ".o", object);
  return object;
}

}  // namespace

std::string compile_kernel(const KernelRequest& request, const std::atomic<bool>* stop) {
  initialise_llvm();
  auto workspace = std::make_unique<Workspace>();
  try {
    return compile_in(*workspace, request, stop);
  } catch (const std::bad_alloc&) {
    // LLVM does not clean up behind an exception: what it was changing is in no state to be destroyed.
    static_cast<void>(workspace.release());
    throw;
  }
}

std::string_view runtime_object_bytes() { return {reinterpret_cast<const char*>(runtime_object), runtime_object_size}; }

std::string llvm_version() { return LLVM_VERSION_STRING; }

}  // namespace ingot
