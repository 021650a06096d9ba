"""kernel_table.py LLVM_BIN OUT BUILD=FOLDER...

From each build's kernel objects, one native object in which only the ingot_* functions are global, with the build's
name as a suffix, and one in which they are all null, for a library that leaves the build out; and a table in C++: for
each of them a `Kernel` that names its builds."""

import subprocess
import sys
from pathlib import Path

llvm_bin, out, *named = sys.argv[1:]
folder = Path(out)
objects = {build: Path(where) for build, where in (each.split("=") for each in named)}
builds = list(objects)


def run(tool: str, *arguments: object) -> str:
    command = [f"{llvm_bin}/{tool}", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


# Objects of sources that are gone may still lie in the folder.
sources = sorted(s.stem for s in (Path(__file__).parent.parent / "src" / "kernels").glob("*.cpp"))
kernels: list[str] = []
for build in builds:
    joined, native = folder / f"joined_{build}.o", folder / f"native_{build}.o"
    run("ld.lld", "-r", *(objects[build] / f"{source}.o" for source in sources), "-o", joined)
    symbols = run("llvm-nm", "--defined-only", "--extern-only", "--format=posix", joined).splitlines()
    found = sorted(line.split()[0] for line in symbols if line.startswith("ingot_") and line.split()[1] in "TW")
    if kernels and found != kernels:
        sys.exit(f"kernels differ between {builds[0]} and {build}: {sorted(set(found) ^ set(kernels))}")
    kernels = found
    keep, rename = native.with_suffix(".keep"), native.with_suffix(".rename")
    keep.write_text("".join(f"{k}\n" for k in kernels))
    rename.write_text("".join(f"{k} {k}_{build}\n" for k in kernels))
    run("llvm-objcopy", f"--keep-global-symbols={keep}", joined)
    run("llvm-objcopy", f"--redefine-syms={rename}", joined, native)
    absent = folder / f"absent_{build}.s"
    absent.write_text("".join(f".globl {k}_{build}\n.set {k}_{build}, 0\n" for k in kernels))
    run("clang", "-c", absent, "-o", absent.with_suffix(".o"))

lines = ['#include "kernels/abi.h"\n', "namespace ingot {\n", 'extern "C" {']
for kernel in kernels:
    lines += [f"KernelStatus {kernel}_{build}(const KernelCall*);" for build in builds]
    functions = ", ".join(f"{kernel}_{build}" for build in builds)
    lines += [f"INGOT_KERNEL({kernel});", f'const Kernel {kernel}_kernel = {{"{kernel}", {{{functions}}}}};']
lines += ["}\n", "}  // namespace ingot\n"]
(folder / "kernel_table.cpp").write_text("\n".join(lines))
