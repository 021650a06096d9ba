"""Caches of the torch backend, in memory and on disk, and compilers in other processes."""

from __future__ import annotations

import gc
import json
import os
import stat
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from conftest import PROGRAM, cli
from torch import nn

import ingot
import ingot.torch
from ingot._ingot import Cache, WeightWatch, content_hashes, kernels_compiled
from ingot.torch import sessions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    ingot.torch.clear_cache()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ingot.torch.FallbackWarning)
        yield


def same(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def mlp(hidden: int = 16) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, hidden), nn.GELU(), nn.Linear(hidden, 4)).eval()


def run(model: nn.Module, x: torch.Tensor, **options: Any) -> torch.Tensor:
    torch._dynamo.reset()
    with torch.no_grad():
        found = torch.compile(model, backend="ingot", options=options or None)(x)
        same(found, model(x), 1e-4)
    return found


# In memory


def test_equal_models_share_a_session_and_others_do_not() -> None:
    x = torch.randn(2, 8)
    run(mlp(), x)
    start = ingot.torch.cache_info()
    run(mlp(), x)
    assert ingot.torch.cache_info().hits == start.hits + 1
    other = mlp()
    with torch.no_grad():
        other[2].bias[3] += 1e-6  # one number of one weight
    run(other, x)
    run(mlp(), x, compile_options="-O1")
    run(mlp(), x, tag="mine")
    assert ingot.torch.cache_info().hits == start.hits + 1
    run(mlp(), x, cache_size=4)
    with torch.no_grad():
        double = mlp().double()
        torch._dynamo.reset()
        same(torch.compile(double, backend="ingot")(x.double()), double(x.double()))
    assert ingot.torch.cache_info().misses >= start.misses + 4


def test_memory_cache_is_lru() -> None:
    x, keys = torch.randn(2, 8), []
    for hidden in (8, 16, 24):
        run(mlp(hidden), x)
        keys.append(ingot.torch.cache_info().keys[0])
    assert ingot.torch.cache_info().keys == keys[::-1]
    run(mlp(8), x)  # the oldest is used again, so the second oldest goes
    run(mlp(32), x)
    kept = ingot.torch.cache_info().keys
    assert kept[1:] == [keys[0], keys[2]]
    hits = ingot.torch.cache_info().hits
    run(mlp(16), x)
    assert ingot.torch.cache_info().hits == hits
    run(mlp(40), x, cache_size=1)
    assert len(ingot.torch.cache_info().keys) == 1


def test_calls_count_as_uses() -> None:
    x, functions, keys = torch.randn(2, 8), [], []
    with torch.no_grad():
        for hidden in (8, 16, 24, 32):
            functions.append(ingot.torch.compile(mlp(hidden)))
            functions[0](x)
            functions[-1](x)
            keys.append(ingot.torch.cache_info().keys[0])
    assert ingot.torch.cache_info().keys == [
        keys[3],
        keys[0],
        keys[2],
    ]  # not keys[1], which was made later than keys[0]


def held() -> int:
    """Sessions that anybody has."""
    gc.collect()
    return len(sessions.living)


def test_graphs_of_one_function_have_as_many_sessions_as_are_kept() -> None:
    before, model = held(), mlp()
    fast = torch.compile(model, backend="ingot", dynamic=False, options={"cache_size": 2})
    with torch.no_grad():
        for n in (2, 3, 4, 5, 4, 6):
            x = torch.randn(n, 8)
            same(fast(x), model(x))
            assert held() <= before + 2
        misses = ingot.torch.cache_info().misses
        same(fast(x[:4]), model(x[:4]))  # 4 was used after 5
        assert ingot.torch.cache_info().misses == misses
        for _ in range(3):  # in turn: each comes back once, and then all stay
            for n in (2, 3, 4, 5, 6):
                same(fast(torch.ones(n, 8)), model(torch.ones(n, 8)))
            misses, last = ingot.torch.cache_info().misses, misses
        assert misses == last


def test_other_functions_keep_their_sessions() -> None:
    x = torch.randn(2, 8)
    with torch.no_grad():
        functions = [ingot.torch.compile(mlp(8 * n), cache_size=1) for n in (1, 2, 3)]
        for fast in functions:
            fast(x)
        misses = ingot.torch.cache_info().misses
        for fast in functions:
            fast(x)
    assert ingot.torch.cache_info().misses == misses


def test_keep_puts_libraries_into_a_folder(tmp_path: Path) -> None:
    model, x = mlp(), torch.randn(2, 8)
    run(model, x, keep=str(tmp_path / "kept"), tag="mine")
    (library,) = (tmp_path / "kept").iterdir()
    assert library.name == f"mine-{ingot.torch.cache_info().keys[0]}.so"
    (found,) = ingot.load(library).inference([x.numpy()]).values()
    with torch.no_grad():
        same(torch.from_numpy(found), model(x))
    run(model, x, keep=str(tmp_path / "other"), compiler_path=str(PROGRAM), cache_dir=str(tmp_path / "cache"))
    (library,) = (tmp_path / "other").iterdir()
    assert ingot.load(library).is_library


def test_keep_says_when_the_folder_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(ingot.torch.FallbackWarning, match="option 'keep'"):
        run(mlp(), torch.randn(2, 8), keep=str(tmp_path / "file"))


def test_weight_watch_and_hashes() -> None:
    a, b = torch.randn(100, 100), torch.randn(3)
    watch = WeightWatch([a, b], [0, 1], [], True)
    assert watch.same([a, b]) and not watch.same([a.clone(), b])
    with pytest.raises(ingot.InvalidInputError, match="weight 1 of a call with 1"):
        watch.same([a])
    b.add_(1)
    assert not watch.same([a, b])
    watch = WeightWatch([a, b], [0, 1], [], True)
    a.data.add_(1)  # not counted by torch
    assert not watch.same([a, b])
    with pytest.raises(ingot.InvalidInputError, match=r"torch\.Tensor"):
        WeightWatch([1], [0], [], True)
    before = content_hashes([a, b])
    a[50, 50] += 1
    after = content_hashes([a, b])
    assert before[0] != after[0] and before[1] == after[1] and len(before[0]) == 32


# On disk

CHILD = """
import sys, torch, ingot, ingot.torch
from ingot._ingot import kernels_compiled
torch.manual_seed(3)
from torch import nn
model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 64)).eval()
x = torch.ones(64, 256) / 16
with torch.no_grad():
    fast = torch.compile(model, backend="ingot") if sys.argv[1] == "dynamo" else ingot.torch.compile(model)
    assert torch.allclose(fast(x), model(x), atol=1e-5)
print(kernels_compiled())
"""


def child(cache: Path, form: str = "wrapper") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, form],
        env={**os.environ, "INGOT_CACHE_DIR": str(cache)},
        stdout=subprocess.PIPE,
        text=True,
    )


def compiled_by(process: subprocess.Popen[str]) -> int:
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    return int(out)


def test_a_second_process_compiles_nothing_and_damage_is_mended(tmp_path: Path) -> None:
    first = compiled_by(child(tmp_path))
    assert first > 0
    assert compiled_by(child(tmp_path, "dynamo")) == 0
    listed = json.loads(cli("cache", "list", "--json", INGOT_CACHE_DIR=str(tmp_path)).out)
    assert {e["kind"] for e in listed["entries"]} == {"kernel", "kernels of a model"}
    assert sum(e["bytes"] for e in listed["entries"]) == listed["bytes"]
    for entry in tmp_path.glob("*.*o"):
        data = bytearray(entry.read_bytes())
        data[len(data) // 2] ^= 1
        entry.write_bytes(data)
    assert compiled_by(child(tmp_path)) == first
    assert cli("cache", "verify", INGOT_CACHE_DIR=str(tmp_path)).out == ""
    (entry := next(tmp_path.glob("*.o"))).write_bytes(b"short")
    assert cli("cache", "verify", INGOT_CACHE_DIR=str(tmp_path)).out == f"damaged: {entry.name}\n"
    assert not entry.exists()
    (tmp_path / "mine.txt").write_text("not an entry")
    cleared = cli("cache", "clear", "--dir", tmp_path)
    assert cleared.code == 0 and "removed" in cleared.err
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["mine.txt"]


def test_four_processes_at_once_keep_one_compilation(tmp_path: Path) -> None:
    processes = [child(tmp_path) for _ in range(4)]
    counts = sorted(map(compiled_by, processes))
    assert counts[:3] == [0, 0, 0] and counts[3] > 0
    assert len(list(tmp_path.glob("set-*.so"))) == 1


def test_size_limit(tmp_path: Path) -> None:
    assert cli("cache", "list", INGOT_CACHE_DIR=str(tmp_path), INGOT_CACHE_SIZE="many").code != 0
    env = {"INGOT_CACHE_DIR": str(tmp_path), "INGOT_CACHE_SIZE": "40K"}
    subprocess.run([sys.executable, "-c", CHILD, "wrapper"], env={**os.environ, **env}, check=True, capture_output=True)
    total = sum(p.stat().st_size for p in tmp_path.iterdir() if p.is_file())
    assert 0 < total <= 40 * 1024 + 64 * 1024


def test_cache_dir_option(tmp_path: Path) -> None:
    before = kernels_compiled()
    wide = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 64)).eval()
    run(wide, torch.randn(64, 256), cache_dir=str(tmp_path / "here"))
    assert kernels_compiled() > before
    assert list((tmp_path / "here").glob("set-*.so"))
    (tmp_path / "file").write_text("")
    with pytest.raises(ingot.Error, match="cannot be written"):
        Cache(str(tmp_path / "file" / "x"))


# Compilers elsewhere


def script(tmp_path: Path, body: str) -> str:
    path = tmp_path / "compiler"
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_compiler_path(tmp_path: Path) -> None:
    model, x = mlp(), torch.randn(3, 8)
    calls = tmp_path / "calls"
    program = script(tmp_path, f'echo "$@" >> {calls}\nexec {PROGRAM} "$@"')
    options = {"compiler_path": program, "cache_dir": str(tmp_path / "cache"), "tag": "other"}
    before = kernels_compiled()
    run(model, x, **options, compile_options="-O2 --threads 1 --pattern gelu=off")
    assert "-O2" in calls.read_text() and "--pattern=gelu=off" in calls.read_text()
    assert kernels_compiled() == before
    (library,) = (tmp_path / "cache").glob("torch-other-*.so")
    ingot.torch.clear_cache()
    run(model, x, **options, compile_options="-O2 --threads 1 --pattern gelu=off")
    assert len(calls.read_text().splitlines()) == 1  # from disk
    damaged = library.read_bytes()[:1000]
    library.unlink()  # the old file is still mapped
    library.write_bytes(damaged)
    ingot.torch.clear_cache()
    run(model, x, **options, compile_options="-O2 --threads 1 --pattern gelu=off")
    assert len(calls.read_text().splitlines()) == 2
    with torch.no_grad():  # other weights
        model[0].weight.add_(1)
    run(model, x, **options)
    fast = ingot.torch.compile(mlp(24), dynamic=True, precision="bf16", **options)
    with torch.no_grad():
        for n in (3, 5):
            x = torch.randn(n, 8)
            same(fast(x), mlp(24)(x), 3e-2)
    assert not list((tmp_path / "cache").glob("compile-*"))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("kill -SEGV $$", r"crashed \(SIGSEGV\)"),
        ("exit 139", r"crashed \(SIGSEGV\)"),
        ("kill -KILL $$", r"crashed \(SIGKILL\).*more memory"),
        ("echo 'the reason' >&2; exit 4", r"exit code 4: the reason"),
        ("exit 0", "wrote no library"),
        ('echo rubbish > "$4"', "model.so|library|ELF"),
        ("sleep 60", "took more than 1 seconds"),
    ],
)
def test_a_compiler_that_fails(tmp_path: Path, body: str, message: str) -> None:
    options = {"compiler_path": script(tmp_path, body), "cache_dir": str(tmp_path / "cache"), "compiler_timeout": 1}
    with pytest.raises(Exception, match=f"(?s){message}") as caught, torch.no_grad():
        torch.compile(mlp(), backend="ingot", options=options)(torch.ones(2, 8))
    assert isinstance(caught.value, ingot.Error)


def test_memory_limit_and_missing_programs(tmp_path: Path) -> None:
    cache = {"cache_dir": str(tmp_path / "cache")}
    wrong: list[dict[str, Any]] = [
        {"compiler_path": PROGRAM, "compiler_memory": 20_000_000},
        {"compiler_path": "no-such-compiler"},
        {"compiler_image_name": "image", "container_engine": "no-such-engine"},
    ]
    for options in wrong:
        torch._dynamo.reset()
        with pytest.raises(ingot.Error) as caught, torch.no_grad():
            torch.compile(mlp(), backend="ingot", options={**options, **cache})(torch.ones(2, 8))
        assert "compiler" in str(caught.value) or "no-such" in str(caught.value)
    with pytest.raises(ingot.Error), torch.no_grad():
        ingot.torch.compile(mlp(), compiler_path="no-such-compiler", strict=True, **cache)(torch.ones(2, 8))


def test_container_command(tmp_path: Path) -> None:
    """The engine is played by a script that runs the command here; `make container-test` uses a real one."""
    log = tmp_path / "log"
    engine = script(
        tmp_path, f'echo "$@" > {log}\nwhile [[ "$1" != ingot ]]; do shift; done\nshift\nexec {PROGRAM} "$@"'
    )
    options = {
        "compiler_image_name": "ingot:test",
        "container_engine": engine,
        "container_args": "--runtime /usr/sbin/runc run --network=host",
        "compiler_memory": 4 << 30,
        "auto_pull": False,
        "compiler_log": str(tmp_path / "compiler.log"),
        "cache_dir": str(tmp_path / "cache"),
    }
    run(mlp(), torch.randn(2, 8), **options)
    words = log.read_text().split()
    assert words[:4] == ["--runtime", "/usr/sbin/runc", "run", "--rm"]
    volume = words[words.index("--volume") + 1].split(":")
    assert volume[0] == volume[1] and volume[0].startswith(str(tmp_path / "cache"))
    assert words.index("--network=host") < words.index("ingot:test") < words.index("compile")
    assert words[words.index("--memory") + 1] == str(4 << 30)
    assert "--pull=never" in words
    said = (tmp_path / "compiler.log").read_text()
    assert said.startswith(f"$ {engine} --runtime") and "written to" in said and said.endswith("# exit code 0\n")


def test_a_container_that_takes_too_long_is_removed(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    engine = script(tmp_path, f'echo "$@" >> {calls}\nif [[ " $* " == *" run "* ]]; then echo begun; sleep 60; fi')
    options = {
        "compiler_image_name": "ingot:test",
        "container_engine": engine,
        "container_args": "--runtime /usr/sbin/runc run",
        "compiler_timeout": 1,
        "compiler_log": str(tmp_path / "compiler.log"),
        "cache_dir": str(tmp_path / "cache"),
    }
    with pytest.raises(ingot.Error, match="took more than 1 seconds"):
        run(mlp(), torch.randn(2, 8), **options)
    started, ended = (line.split() for line in calls.read_text().splitlines())
    assert ended == ["--runtime", "/usr/sbin/runc", "rm", "--force", started[started.index("--name") + 1]]
    assert (tmp_path / "compiler.log").read_text().endswith("begun\n# ended here: TimeoutExpired\n")
