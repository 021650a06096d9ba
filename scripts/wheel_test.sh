#!/usr/bin/env bash
# wheel_test.sh VENV: installs dist/ingot-*.whl into a fresh environment outside the repository and uses it there. torch and
# numpy are read from VENV, so nothing is downloaded.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv="$(realpath "$1")"
wheels=("$PWD"/dist/ingot-*.whl)
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

"$venv/bin/python" -m venv "$work/env"
"$work/env/bin/pip" install --quiet --no-index --no-deps "${wheels[-1]}"
package="$("$work/env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')/ingot"

# What a Debian without our build tools has; the rest is in the wheel.
for file in "$package"/_ingot.*.so "$work/env/bin/ingot"; do
  foreign="$(ldd "$file" | grep -v -E "$package/|linux-vdso|ld-linux|lib(c|m|dl|pthread|gcc_s|stdc\+\+|z|zstd)\.so" || true)"
  [[ -z "$foreign" ]] || { printf 'wheel-test: %s needs\n%s\n' "$file" "$foreign" >&2; exit 1; }
done

cd "$work"
env/bin/ingot version
PYTHONPATH="$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')" \
  INGOT_CACHE_DIR="$work/cache" env/bin/python - "$package" <<'PYTHON'
import sys
from pathlib import Path

import torch

net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)).eval()
x = torch.randn(3, 8)
with torch.no_grad():
    expected = net(x)
    torch.testing.assert_close(torch.compile(net, backend="ingot")(x), expected, rtol=1e-4, atol=1e-5)
    torch.onnx.export(net, (x,), "net.onnx", input_names=["x"], output_names=["y"], verbose=False)

import ingot

assert Path(ingot.__file__).parent == Path(sys.argv[1]), ingot.__file__
result = ingot.compile("net.onnx").inference({"x": x.numpy()})["y"]
torch.testing.assert_close(torch.from_numpy(result), expected, rtol=1e-4, atol=1e-5)
PYTHON
env/bin/ingot run net.onnx --random >/dev/null
printf 'wheel-test: %s works\n' "$(basename "${wheels[-1]}")"
