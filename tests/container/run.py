"""run.py IMAGE: PyTorch models compiled by the Ingot in a container; `make container-test`.

With podman itself; with docker's command line, if it is there, over podman's socket; and from inside a container. The
engine's own options are those that also work without systemd and on kernels that crun does not run on.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

import ingot
import ingot.torch
from ingot._ingot import kernels_compiled

if TYPE_CHECKING:
    from collections.abc import Iterator

ENGINE = ["--runtime", "/usr/sbin/runc", "--storage-driver=vfs", "--cgroup-manager=cgroupfs"]
RUN = ["--network=host", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 8)).eval()


def check(fast: Any, sizes: tuple[int, ...], tolerance: float = 1e-5) -> None:
    with torch.no_grad():
        for n in sizes:
            x = torch.randn(n, 64)
            torch.testing.assert_close(fast(x), model()(x), rtol=tolerance, atol=tolerance)


def compiled(options: dict[str, Any]) -> Any:
    torch._dynamo.reset()
    ingot.torch.clear_cache()
    return torch.compile(model(), backend="ingot", options=options)


def refused(what: str, options: dict[str, Any], reason: str) -> None:
    try:
        check(compiled(options), (4,))
    except ingot.Error as error:
        if reason not in str(error):
            raise
        print(f"{what}: {str(error).splitlines()[0]}")
    else:
        raise SystemExit(f"{what}: no error")


def with_podman(image: str, folder: Path) -> None:
    options: dict[str, Any] = {
        "compiler_image_name": image,
        "container_engine": "podman",
        "container_args": [*ENGINE, "run", *RUN],
        "cache_dir": str(folder / "cache"),
        "compiler_log": str(folder / "compiler.log"),
    }
    start = time.perf_counter()
    check(compiled(options), (4,))
    print(f"torch.compile, compiled in a container: right, {time.perf_counter() - start:.1f} s")
    check(ingot.torch.compile(model(), dynamic=True, **options), (4, 7, 9))
    print("wrapper with dynamic shapes: right")
    check(compiled({**options, "precision": "bf16"}), (4,), 0.02)
    print("bf16: right")
    libraries = list((folder / "cache").glob("torch-*.so"))
    assert len(libraries) == 3 and all(p.stat().st_uid == os.getuid() for p in libraries)
    assert (folder / "compiler.log").read_text().count("# exit code 0\n") == 3
    check(compiled({**options, "container_args": "--no-such-flag run"}), (4,))
    print("from the disk cache, without the engine: right")
    other = {**options, "tag": "other"}  # nothing of it is in the cache
    missing = {**other, "compiler_image_name": "localhost/no-such-image:none"}
    refused("an image that is not there", {**missing, "auto_pull": False}, "no-such-image")
    refused("the same, asked for", missing, "no-such-image")
    refused("too little time", {**other, "compiler_timeout": 0.05}, "took more than")
    left = subprocess.run(["podman", *ENGINE, "ps", "-a", "-q"], check=True, capture_output=True, text=True).stdout
    assert not left, f"containers are left: {left}"


@contextlib.contextmanager
def service(folder: Path) -> Iterator[str]:
    """podman as a service, which docker's command line understands too."""
    address = f"unix://{folder}/podman.sock"
    process = subprocess.Popen(["podman", *ENGINE, "system", "service", "--time=0", address])
    try:
        for _ in range(100):
            if (folder / "podman.sock").exists():
                break
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait()


def with_docker(image: str, folder: Path, address: str) -> None:
    options = {
        "compiler_image_name": image,
        "container_args": ["--host", address, "run", *RUN],
        "cache_dir": str(folder / "docker"),
    }
    check(compiled(options), (4,))
    refused("docker, too little time", {**options, "tag": "late", "compiler_timeout": 0.3}, "took more than")
    print("docker's command line: right")


def inside(image: str, folder: Path, address: str) -> None:
    """This program again, in a container that sees this machine's programs; the engine is the one outside."""
    mine = ["/usr", "/lib", "/lib64", "/bin", "/etc", sys.base_prefix, str(Path(__file__).resolve().parents[2])]
    mounts = [word for path in dict.fromkeys(mine) for word in ("--volume", f"{path}:{path}:ro")]
    command = [sys.executable, __file__, image, str(folder), address]
    subprocess.run(
        ["podman", *ENGINE, "run", "--rm", *RUN, *mounts, "--volume", f"{folder}:{folder}", image, *command], check=True
    )


def from_inside(image: str, folder: Path, address: str) -> None:
    assert Path("/run/.containerenv").exists(), "this is no container"
    options = {
        "compiler_image_name": image,
        "container_engine": "podman",
        "container_args": ["--remote", "--url", address, "run", *RUN],
        "cache_dir": str(folder / "inside"),
    }
    check(compiled(options), (4,))
    print("from inside a container: right")


def main() -> None:
    image = sys.argv[1]
    if len(sys.argv) > 2:
        return from_inside(image, Path(sys.argv[2]), sys.argv[3])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with_podman(image, folder)
        with service(folder) as address:
            inside(image, folder, address)
            if shutil.which("docker"):
                with_docker(image, folder, address)
    assert kernels_compiled() == 0, "something was compiled in this process"
    return None


if __name__ == "__main__":
    main()
