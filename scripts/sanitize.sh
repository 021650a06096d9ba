#!/usr/bin/env bash
# sanitize.sh BUILD SANITIZERS [ARGUMENTS...]: builds compiler_test with sanitizers (address,undefined or thread) beside BUILD, which has to be
# finished, and runs it. With --build TARGET it only builds that.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
plain="$PWD/$1" build="$1-${2%%,*}" sanitizers="$2"
shift 2
llvm=/usr/lib/llvm-22/bin
export PATH="$llvm:$PATH"
# LLVM is not built with sanitizers: what it allocates and its atomics are not followed.
export ASAN_OPTIONS=detect_leaks=0:detect_container_overflow=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:ignore_noninstrumented_modules=1:die_after_fork=0
target=compiler_test
[[ "${1:-}" != --build ]] || target="$2"
[[ -f "$build/build.ninja" ]] || cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DINGOT_SANITIZERS="$sanitizers" \
  -DINGOT_PLAIN_BUILD="$plain" -DPython_EXECUTABLE="$PWD/.venv/bin/python" >/dev/null
ninja -C "$build" "$target" | tail -n 1
[[ "${1:-}" == --build ]] || "$build/tests/compiler_test" --gtest_brief=1 "$@"
