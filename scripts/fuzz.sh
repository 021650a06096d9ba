#!/usr/bin/env bash
# fuzz.sh BUILD [SECONDS]: builds tests/fuzz with sanitizers beside BUILD; runs the broken variants of every operator
# (tests/conformance/bad_models.py), then each program that long from ONNX's own cases. What crashes one is kept in BUILD-fuzz/crashes, to be run again as `BUILD-fuzz/tests/fuzz/NAME_fuzz FILE`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build="$1-fuzz" seconds="${2:-120}"
llvm=/usr/lib/llvm-22/bin
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 PATH="$llvm:$PATH"

[[ -f "$build/build.ninja" ]] || cmake -S . -B "$build" -G Ninja -DINGOT_FUZZ=ON -DPython_EXECUTABLE="$PWD/.venv/bin/python" >/dev/null
ninja -C "$build" onnx_fuzz ir_fuzz convert_fuzz | tail -n 1
mkdir -p "$build/crashes"
[[ -d "$build/seeds/convert" ]] || .venv/bin/python tests/fuzz/seeds.py "$build/seeds"
[[ -d "$build/seeds/bad" ]] || .venv/bin/python tests/conformance/bad_models.py "$build/seeds/bad"
fuzz() { # NAME WHAT ARGUMENTS...: runs NAME_fuzz and shows what it found
  local name="$1" log="$build/$2.log"
  shift 2
  "$build/tests/fuzz/${name}_fuzz" -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 \
    -artifact_prefix="$build/crashes/${name}-" "$@" 2>"$log" ||
    { grep -E -A 25 'ERROR|runtime error|libFuzzer' "$log" | head -n 60; exit 1; }
  printf '%s: %s\n' "$name" "$(grep -E 'number_of_executed_units' "$log")"
}
fuzz onnx bad -runs=0 "$build/seeds/bad"
for name in onnx ir convert; do
  mkdir -p "$build/found/$name"
  fuzz "$name" "$name" -max_total_time="$seconds" -max_len=8192 "$build/found/$name" "$build/seeds/$name"
done
