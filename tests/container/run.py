"""run.py IMAGE: PyTorch models compiled by the Ingot in a container, with podman; `make container-test`.

The engine's own options are those that also work without systemd and on kernels that crun does not run on.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import ingot
import ingot.torch
from ingot._ingot import kernels_compiled

ENGINE = (
    "--runtime /usr/sbin/runc --storage-driver=vfs --cgroup-manager=cgroupfs run --network=host "
    "--ulimit nofile=1024:1024 --ulimit nproc=1024:1024"
)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 8)).eval()


def check(fast: Any, sizes: tuple[int, ...]) -> None:
    with torch.no_grad():
        for n in sizes:
            x = torch.randn(n, 64)
            torch.testing.assert_close(fast(x), model()(x), rtol=1e-5, atol=1e-5)


def main() -> None:
    image = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {
            "compiler_image_name": image,
            "container_engine": "podman",
            "container_args": ENGINE,
            "cache_dir": folder,
        }
        start = time.perf_counter()
        check(torch.compile(model(), backend="ingot", options=options), (4,))
        print(f"torch.compile, compiled in a container: right, {time.perf_counter() - start:.1f} s")
        check(ingot.torch.compile(model(), dynamic=True, **options), (4, 7, 9))
        print("wrapper with dynamic shapes: right")
        assert kernels_compiled() == 0, "something was compiled in this process"
        libraries = list(Path(folder).glob("torch-*.so"))
        assert len(libraries) == 2 and all(p.stat().st_uid == os.getuid() for p in libraries)
        ingot.torch.clear_cache()
        torch._dynamo.reset()
        no_engine = {**options, "container_args": "--no-such-flag run"}
        try:
            check(torch.compile(model(), backend="ingot", options=no_engine), (4,))
            print("from the disk cache, without the engine: right")
        except ingot.Error as error:
            raise SystemExit(f"the library was not taken from the cache: {error}") from None
        wrong = {**options, "compiler_image_name": "localhost/no-such-image:none"}
        torch._dynamo.reset()
        try:
            check(torch.compile(model(), backend="ingot", options=wrong), (4,))
        except ingot.UnsupportedError as error:
            print(f"an image that is not there: {str(error).splitlines()[0]}")
        else:
            raise SystemExit("a missing image was no error")


if __name__ == "__main__":
    main()
