"""From each ISA level's kernel objects, one native object in which only the ingot_* functions are global, with the
level as a suffix; and a table in C++: for each of them a `Kernel` that names its builds."""

import subprocess
import sys
from pathlib import Path

llvm_bin, out, *levels = sys.argv[1:]
folder = Path(out)


def run(tool: str, *arguments: object) -> str:
    command = [f"{llvm_bin}/{tool}", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


kernels: list[str] = []
for level in levels:
    joined, native = folder / f"joined_{level}.o", folder / f"native_{level}.o"
    run("ld.lld", "-r", *sorted((folder / level).glob("*.o")), "-o", joined)
    symbols = run("llvm-nm", "--defined-only", "--extern-only", "--format=posix", joined).splitlines()
    found = sorted(line.split()[0] for line in symbols if line.startswith("ingot_") and line.split()[1] in "TW")
    if kernels and found != kernels:
        sys.exit(f"kernels differ between {levels[0]} and {level}: {sorted(set(found) ^ set(kernels))}")
    kernels = found
    keep, rename = native.with_suffix(".keep"), native.with_suffix(".rename")
    keep.write_text("".join(f"{k}\n" for k in kernels))
    rename.write_text("".join(f"{k} {k}_{level}\n" for k in kernels))
    run("llvm-objcopy", f"--keep-global-symbols={keep}", joined)
    run("llvm-objcopy", f"--redefine-syms={rename}", joined, native)

lines = ['#include "kernels/abi.h"\n', "namespace ingot {\n", 'extern "C" {']
for kernel in kernels:
    lines += [f"KernelStatus {kernel}_{level}(const KernelCall*);" for level in levels]
    builds = ", ".join(f"{kernel}_{level}" for level in levels)
    lines += [f"INGOT_KERNEL({kernel});", f'const Kernel {kernel}_kernel = {{"{kernel}", {{{builds}}}}};']
lines += ["}\n", "}  // namespace ingot\n"]
(folder / "kernel_table.cpp").write_text("\n".join(lines))
