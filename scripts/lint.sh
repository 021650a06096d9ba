#!/usr/bin/env bash
# lint.sh [--quick] BUILD: the order of includes, the figures of docs/guarantees.md, formatting of all sources, ruff and mypy; unless --quick also clang-tidy
# on the C++ files changed since main (or all: INGOT_LINT_ALL=1). Says everything that is wrong, then fails.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
quick=0
[[ "$1" == --quick ]] && { quick=1; shift; }
build="$1"
llvm=/usr/lib/llvm-22/bin
failed=0

python scripts/include_check.py || failed=1
python tests/figures.py --check || failed=1

mapfile -t sources < <(git ls-files '*.cpp' '*.h' '*.c')
"$llvm/clang-format" --dry-run -Werror "${sources[@]}" </dev/null || failed=1

ruff format --check -q . || failed=1
ruff check -q . || failed=1
mypy || failed=1

tidy=()
if [[ $quick == 1 ]]; then
  :
elif [[ -n "${INGOT_LINT_ALL:-}" ]]; then
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

[[ $failed == 0 ]] && printf 'lint: clean\n'
exit $failed
