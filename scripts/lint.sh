#!/usr/bin/env bash
# lint.sh BUILD: formatting of all sources, clang-tidy on the C++ files changed since main (or all: INGOT_LINT_ALL=1),
# ruff and mypy. Says everything that is wrong, then fails.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build="$1"
llvm=/usr/lib/llvm-22/bin
failed=0

mapfile -t sources < <(git ls-files '*.cpp' '*.h' '*.c')
"$llvm/clang-format" --dry-run -Werror "${sources[@]}" || failed=1

if [[ -n "${INGOT_LINT_ALL:-}" ]]; then
  mapfile -t tidy < <(git ls-files '*.cpp')
else
  base="$(git merge-base HEAD main 2>/dev/null || git rev-parse HEAD)"
  mapfile -t tidy < <({ git diff --name-only --diff-filter=d "$base" -- '*.cpp'; git diff --name-only HEAD -- '*.cpp'; } | sort -u)
fi
# Only what the build knows how to compile.
known=()
for file in "${tidy[@]}"; do
  grep -q "\"file\": \"$PWD/$file\"" "$build/compile_commands.json" 2>/dev/null && known+=("$file")
done
if [[ ${#known[@]} -gt 0 ]]; then
  printf '%s\n' "${known[@]}" | xargs -P "$(nproc)" -n 1 "$llvm/clang-tidy" -p "$build" --quiet 2>/dev/null || failed=1
fi

ruff format --check -q . || failed=1
ruff check -q . || failed=1
mypy || failed=1
[[ $failed == 0 ]] && printf 'lint: clean\n'
exit $failed
