#!/usr/bin/env bash
# prepare_model.sh --input_model=DIR --task_name=mrpc --output_dir=DIR --precision=fp32|int8|bf16 [--data_dir=DIR]
# Writes <precision>-model.onnx of a Hugging Face sequence classifier in a local folder.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
python="${PYTHON:-$here/../../.venv/bin/python}"
[[ -x $python ]] || python=python3
export HF_HUB_OFFLINE=1
exec "$python" "$here/prepare_model.py" "$@"
