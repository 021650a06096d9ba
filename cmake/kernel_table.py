"""Makes one ISA level's native kernel object: only ingot_* functions stay global, with the level as a suffix, and a
generated C++ table lists them by name."""

import subprocess
import sys
from pathlib import Path

llvm_bin, joined, isa, native, table = sys.argv[1:]
symbols = subprocess.run(
    [f"{llvm_bin}/llvm-nm", "--defined-only", "--extern-only", "--format=posix", joined],
    check=True,
    capture_output=True,
    text=True,
).stdout.splitlines()
kernels = sorted(line.split()[0] for line in symbols if line.startswith("ingot_") and line.split()[1] in "TW")

keep = Path(native).with_suffix(".keep")
keep.write_text("".join(f"{k}\n" for k in kernels))
rename = Path(native).with_suffix(".rename")
rename.write_text("".join(f"{k} {k}_{isa}\n" for k in kernels))
local = f"{native}.local"
subprocess.run([f"{llvm_bin}/llvm-objcopy", f"--keep-global-symbols={keep}", joined, local], check=True)
subprocess.run([f"{llvm_bin}/llvm-objcopy", f"--redefine-syms={rename}", local, native], check=True)
Path(local).unlink()

rows = "".join(f'    {{"{k}", (void*)&{k}_{isa}}},\n' for k in kernels)
declarations = "".join(f"void {k}_{isa}();\n" for k in kernels)
Path(table).write_text(
    f'extern "C" {{\nstruct IngotNativeKernel {{ const char* name; void* function; }};\n{declarations}'
    f"extern const IngotNativeKernel ingot_native_kernels_{isa}[];\n"
    f"const IngotNativeKernel ingot_native_kernels_{isa}[] = {{\n{rows}    {{nullptr, nullptr}}}};\n}}\n"
)
