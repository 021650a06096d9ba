#!/usr/bin/env bash
# bench_kernels.sh INGOT [NAME...]: the register tiles by themselves, specialised as the code generator does it, for the
# build of this CPU's target (INGOT_ISA lowers it). NAME: gemm, conv or attention; all without one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ingot="$1"
shift
target="$("$ingot" version --json | sed -n 's/.*"target": "\(x86-64-v[0-9]\).*/\1/p')"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
[[ $# -gt 0 ]] || set -- gemm conv attention
for name in "$@"; do
  /usr/lib/llvm-22/bin/clang++ -std=c++20 -O3 "-march=$target" -mprefer-vector-width=512 -ffp-contract=on -Wno-psabi \
    -Wno-pass-failed -DINGOT_NATIVE -Isrc "bench/kernels/${name}_bench.cpp" -o "$folder/$name"
  printf '%s, %s\n' "$name" "$target"
  "$folder/$name"
done
