#!/usr/bin/env bash
# fuzz.sh BUILD [SECONDS]: builds tests/fuzz with sanitizers beside BUILD and runs each program that long, from ONNX's own
# cases. What crashes one is kept in BUILD-fuzz/crashes, to be run again as `BUILD-fuzz/tests/fuzz/NAME_fuzz FILE`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build="$1-fuzz" seconds="${2:-120}"
llvm=/usr/lib/llvm-22/bin
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 PATH="$llvm:$PATH"

[[ -f "$build/build.ninja" ]] || cmake -S . -B "$build" -G Ninja -DINGOT_FUZZ=ON -DPython_EXECUTABLE="$PWD/.venv/bin/python" >/dev/null
ninja -C "$build" onnx_fuzz ir_fuzz | tail -n 1
mkdir -p "$build/crashes"
[[ -d "$build/seeds/ir" ]] || .venv/bin/python tests/fuzz/seeds.py "$build/seeds"
for name in onnx ir; do
  mkdir -p "$build/found/$name"
  "$build/tests/fuzz/${name}_fuzz" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -max_len=8192 -print_final_stats=1 \
    -artifact_prefix="$build/crashes/${name}-" "$build/found/$name" "$build/seeds/$name" 2>"$build/$name.log" ||
    { grep -E -A 25 'ERROR|runtime error|libFuzzer' "$build/$name.log" | head -n 60; exit 1; }
  printf '%s: %s\n' "$name" "$(grep -E 'number_of_executed_units' "$build/$name.log")"
done
