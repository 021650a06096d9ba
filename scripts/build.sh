#!/usr/bin/env bash
# build.sh BUILD VENV: compiles, and makes `import ingot` and the `ingot` command of VENV mean this build.
set -euo pipefail
build="$(realpath "$1")"
venv="$2"

log="$build/build.log"
start=$SECONDS
if [[ -t 2 ]]; then
  ninja -C "$build" >&2
elif ! ninja -C "$build" >"$log" 2>&1; then
  grep -E -A 20 'error|FAILED' "$log" | head -n 60 >&2 || tail -n 40 "$log" >&2
  printf 'build: failed\nhint: the whole log is in %s\n' "$log" >&2
  exit 1
fi
took=$((SECONDS - start))
[[ $took -lt 2 ]] || printf 'build: done in %ds\n' "$took" >&2

# build/python/ingot is the package: links to the sources and the compiled module.
site="$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')"
pth="$site/ingot-build.pth"
if [[ ! -f "$pth" || "$(<"$pth")" != "$build/python" ]]; then
  printf '%s\n' "$build/python" >"$pth"
fi
ln -sfn "$build/bin/ingot" "$venv/bin/ingot"
