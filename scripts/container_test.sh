#!/usr/bin/env bash
# container_test.sh BUILD: compiles PyTorch models with a compiler in a real container. Installs podman and runc if they
# are missing; as there may be no registry, the image is made from the `ingot` of this build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build="$(realpath "$1")"
image=localhost/ingot-compiler:test

if ! command -v podman >/dev/null || ! command -v runc >/dev/null; then
  as_root=()
  [[ "$(id -u)" == 0 ]] || as_root=(sudo)
  "${as_root[@]}" apt-get update -q >/dev/null || true
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends podman runc >"$build/podman.log" 2>&1 ||
    { tail -n 20 "$build/podman.log" >&2; exit 1; }
fi

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
scripts/container_rootfs.sh "$build/bin/ingot" "$work/rootfs"
tar -C "$work/rootfs" -cf "$work/rootfs.tar" .
podman --storage-driver=vfs import --quiet "$work/rootfs.tar" "$image" >/dev/null
trap 'rm -rf "$work"; podman --storage-driver=vfs rmi --force "$image" >/dev/null 2>&1 || true' EXIT
.venv/bin/python tests/container/run.py "$image"
