#!/usr/bin/env bash
# bench_kernels.sh INGOT [NAME...]: the register tiles by themselves, specialised as the code generator does it, with the
# instructions of this CPU's target (INGOT_ISA lowers it). NAME: gemm, gemm_narrow, gemm_i8, conv or attention; all without one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ingot="$1"
shift
target="$("$ingot" version --json | sed -n 's/.*"target": "\(.*\)",/\1/p')"
# Its row: | `target` | feature, feature | `build` | ...
IFS='|' read -r _ _ features build _ < <("$ingot" version --targets 2>/dev/null | grep -F "| \`$target\` |")
read -ra flags <<<"-march=${build//[\` ]/} $(sed 's/\([^, ]\+\),\?/-m\1/g' <<<"$features")"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
[[ $# -gt 0 ]] || set -- gemm gemm_narrow gemm_i8 conv attention
for name in "$@"; do
  /usr/lib/llvm-22/bin/clang++ -std=c++20 -O3 "${flags[@]}" -mprefer-vector-width=512 -ffp-contract=on -Wno-psabi \
    -Wno-pass-failed -Isrc "bench/kernels/${name}_bench.cpp" -o "$folder/$name"
  printf '%s, %s\n' "$name" "$target"
  "$folder/$name"
done
