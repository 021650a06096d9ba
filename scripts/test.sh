#!/usr/bin/env bash
# test.sh BUILD: the quick lints, then all tests, C++ and Python; one summary at the end, and the failures before it.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build="$1"
lint_log="$build/lint.log"
ctest_log="$build/ctest.log"
pytest_log="$build/pytest.log"

start=$SECONDS
scripts/lint.sh --quick "$build" >"$lint_log" 2>&1
lint=$?
lint_line="clean"
[[ $lint == 0 ]] || { lint_line="failed"; head -n 200 "$lint_log"; }
lint_took=$((SECONDS - start))

start=$SECONDS
ctest --test-dir "$build" --output-on-failure -j "$(nproc)" --no-tests=ignore >"$ctest_log" 2>&1
cpp=$?
[[ $cpp == 0 ]] || { grep -vE '^ *[0-9]+/[0-9]+ Test .*Passed|^ +Start' "$ctest_log" | head -n 200; }
cpp_line="$(grep -E 'tests passed|tests failed|No tests were found' "$ctest_log" | tail -n 1)"
cpp_took=$((SECONDS - start))

start=$SECONDS
.venv/bin/python -m pytest -q --no-header -r fE tests >"$pytest_log" 2>&1
python=$?
[[ $python == 0 ]] || cat "$pytest_log"
python_line="$(tail -n 1 "$pytest_log")"
python_took=$((SECONDS - start))

printf '\nLint    %s (%ds)\nC++     %s (%ds)\nPython  %s (%ds)\n' "$lint_line" "$lint_took" \
  "${cpp_line:-did not run}" "$cpp_took" "${python_line//=/}" "$python_took"
[[ $lint == 0 && $cpp == 0 && $python == 0 ]]
