#!/usr/bin/env bash
# fuzz.sh BUILD [SECONDS] [--write]: builds the programs of tests/fuzz with sanitizers beside BUILD; runs the broken variants of every operator
# (tests/conformance/bad_models.py), then each program that long from tests/fuzz/corpus and ONNX's own cases. What crashes one is kept in
# BUILD-address/crashes, to be run again as `BUILD-address/tests/fuzz/NAME_fuzz FILE`. --write: figures for docs/guarantees.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build="$1-address" seconds="${2:-120}" write="${3:-}"
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 PATH="/usr/lib/llvm-22/bin:$PATH"
scripts/sanitize.sh "$1" address,undefined --build fuzz_programs
mkdir -p "$build/crashes"
[[ -d "$build/seeds/weights" ]] || .venv/bin/python tests/fuzz/seeds.py "$build/seeds"
[[ -d "$build/seeds/bad" ]] || .venv/bin/python tests/conformance/bad_models.py "$build/seeds/bad"
figures=()
fuzz() { # NAME WHAT ARGUMENTS...: runs NAME_fuzz and shows what it found
  local name="$1" log="$build/$2.log"
  shift 2
  "$build/tests/fuzz/${name}_fuzz" -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 -close_fd_mask=1 \
    -artifact_prefix="$build/crashes/${name}-" "$@" 2>"$log" ||
    { grep -E -A 25 'ERROR|runtime error|libFuzzer' "$log" | head -n 60; exit 1; }
  printf '%s: %s\n' "$name" "$(grep -E 'number_of_executed_units' "$log")"
}
fuzz onnx bad -runs=0 "$build/seeds/bad"
for name in onnx ir weights convert npy library c_api options cache; do
  corpus="tests/fuzz/corpus/${name/weights/ir}"
  mkdir -p "$build/found/$name" "$build/seeds/$name"
  fuzz "$name" "$name" -max_total_time="$seconds" -max_len=8192 "$build/found/$name" "$corpus" "$build/seeds/$name"
  figures+=("executions of $name=$(grep -oP 'number_of_executed_units: \K\d+' "$build/$name.log")")
done
[[ $write != --write ]] || .venv/bin/python tests/figures.py --add fuzz "seconds each=$seconds" "${figures[@]}" findings=0
