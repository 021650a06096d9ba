// lld initialises every target LLVM was built with; linking them all in would add a hundred megabytes. Ingot links x86
// only, so the others' initialisers are defined here and do nothing.
// clang-format off
#define INGOT_OTHER_TARGETS(X)                                                                          \
  X(AArch64) X(AMDGPU) X(ARM) X(AVR) X(BPF) X(Hexagon) X(Lanai) X(LoongArch) X(M68k) X(Mips) X(MSP430)  \
  X(NVPTX) X(PowerPC) X(RISCV) X(Sparc) X(SPIRV) X(SystemZ) X(VE) X(WebAssembly) X(XCore) X(Xtensa)
// clang-format on
#define INGOT_NOTHING(TARGET)                  \
  void LLVMInitialize##TARGET##TargetInfo() {} \
  void LLVMInitialize##TARGET##Target() {}     \
  void LLVMInitialize##TARGET##TargetMC() {}   \
  void LLVMInitialize##TARGET##AsmPrinter() {} \
  void LLVMInitialize##TARGET##AsmParser() {}  \
  void LLVMInitialize##TARGET##Disassembler() {}
extern "C" {
INGOT_OTHER_TARGETS(INGOT_NOTHING)
}
