"""Memory of compiled PyTorch models: packed copies that sessions share, and originals that live on disk."""

from __future__ import annotations

import copy
import gc
import io
import os
import struct
import warnings
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import ingot
import ingot.torch
from ingot._ingot import WeightWatch, move_weights_to_file
from ingot.torch.sessions import living, weight_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = os.sysconf("SC_PAGESIZE")
earlier: weakref.WeakSet[Any] = weakref.WeakSet()  # sessions that other tests still hold


def sessions() -> list[Any]:
    """Those of the test that runs."""
    return [session for session in living if session not in earlier]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    ingot.torch.clear_cache()
    gc.collect()
    torch.manual_seed(0)
    earlier.clear()
    earlier.update(living)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ingot.torch.FallbackWarning)
        yield


def same(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5 * (1 + expected.abs().max().item()))


def resident(tensor: torch.Tensor) -> int:
    """Bytes of the tensor's whole pages that are in memory."""
    first, last = -(-tensor.data_ptr() // PAGE), (tensor.data_ptr() + tensor.nbytes) // PAGE
    with Path("/proc/self/pagemap").open("rb", buffering=0) as file:
        file.seek(first * 8)
        entries = struct.unpack(f"{last - first}Q", file.read((last - first) * 8))
    return PAGE * sum(int(entry) >> 63 for entry in entries)


class Net(nn.Module):  # type: ignore[misc]
    """A table that is also the last matrix, a matrix, and an attention whose three matrices become one."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(1200, 256)
        self.attention = nn.MultiheadAttention(256, 4, batch_first=True)
        self.up = nn.Linear(256, 1100)
        self.down = nn.Linear(1100, 256)
        self.head = nn.Linear(256, 1200, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.head(x + self.down(torch.relu(self.up(x))))


def net() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(5)
    return Net().eval(), torch.randint(0, 1200, (2, 7))


def compiled(model: nn.Module, form: str, **options: Any) -> Any:
    if form == "wrapper":
        return ingot.torch.compile(model, **options)
    return torch.compile(model, backend="ingot", options=options)


both_forms = pytest.mark.parametrize("form", ["torch.compile", "wrapper"])


# Packed copies


def test_sessions_of_other_shapes_and_precisions_share_packed_weights() -> None:
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).eval()
    packed = 4 * 2 * 256 * 512
    with torch.no_grad():
        fast = ingot.torch.compile(model, dynamic=False)
        for rows in (3, 40):
            same(fast(x := torch.randn(rows, 256)), model(x))
        first = weight_memory(sessions())
        assert len(sessions()) == 2 and packed <= first.packed < 1.3 * packed
        assert first.shared >= packed
        # bf16 has its own form; what stays as it is in a third session is shared.
        ingot.torch.compile(model, precision="bf16")(torch.randn(3, 256))
        assert weight_memory(sessions()).packed < 2 * packed
        other = copy.deepcopy(model)  # equal weights elsewhere, in another graph
        same(ingot.torch.compile(nn.Sequential(other, nn.Tanh()))(x), torch.tanh(model(x)))
        assert weight_memory(sessions()).packed < 2 * packed


def test_weights_that_differ_are_not_shared() -> None:
    x = torch.randn(3, 64)
    models = [nn.Linear(64, 64).eval() for _ in range(2)]
    models.append(copy.deepcopy(models[0]))
    with torch.no_grad():
        models[2].weight[5, 6] += 1e-6
        fast = [ingot.torch.compile(m) for m in models]
        for f, m in zip(fast, models, strict=True):
            same(f(x), m(x))
    assert weight_memory(sessions()).packed >= 3 * 64 * 64 * 4


def test_packed_weights_are_freed_with_their_sessions() -> None:
    with torch.no_grad():
        ingot.torch.compile(model := nn.Linear(256, 256).eval())(torch.randn(2, 256))
    assert weight_memory(sessions()).packed >= 256 * 256 * 4
    del model
    ingot.torch.clear_cache()
    gc.collect()
    assert not sessions()


def test_a_session_keeps_no_third_copy() -> None:
    """The filters with the normalization in them are needed only until they are packed."""
    model = nn.Sequential(nn.Conv2d(64, 64, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()).eval()
    with torch.no_grad():
        same(ingot.torch.compile(model)(x := torch.randn(1, 64, 9, 9)), model(x))
    (session,) = sessions()
    with pytest.raises(ingot.UnsupportedError, match="only the packed weights were kept"):
        session.graph.save("nowhere")
    assert session.graph.nodes


def test_explain_says_where_the_bytes_are(tmp_path: Path) -> None:
    model, ids = net()
    with torch.no_grad():
        fast = ingot.torch.compile(model)
        fast(ids)
        report = ingot.torch.explain(model, ids, ingot_options={"weights": "packed", "cache_dir": str(tmp_path)})
    (graph,) = report.graphs
    assert graph.disk_bytes > 0.9 * graph.weight_bytes
    assert 0 < graph.weight_memory.shared <= graph.weight_memory.packed
    assert "on disk" in str(report) and "shared with other sessions" in str(report)


# Originals on disk


@both_forms
def test_originals_leave_memory_and_come_back_when_read(form: str, tmp_path: Path) -> None:
    model, ids = net()
    kept = {name: p.clone() for name, p in model.state_dict().items()}
    with torch.no_grad():
        expected = model(ids)
        fast = compiled(model, form, weights="packed", cache_dir=str(tmp_path))
        same(fast(ids), expected)
        assert resident(model.up.weight) == resident(model.down.weight) == 0
        start = ingot.torch.cache_info()
        for _ in range(3):
            same(fast(ids), expected)
        info = ingot.torch.cache_info()
        assert (info.hits, info.misses) == (start.hits, start.misses)  # looked at, and still the same
        assert resident(model.up.weight) == 0  # without being read
        same(model(ids), expected)  # in eager
        for name, p in model.state_dict().items():
            assert torch.equal(p, kept[name])
        torch.save(model.state_dict(), buffer := io.BytesIO())  # as the system reads it
        buffer.seek(0)
        assert torch.equal(torch.load(buffer)["up.weight"], kept["up.weight"])
        same(fast(ids), expected)
        again = ingot.torch.cache_info()
        assert (again.hits, again.misses) == (start.hits, start.misses)
        assert not [f for f in tmp_path.iterdir() if f.name.startswith(("weights", "#"))]  # it has no name


def write_data(model: Any) -> None:
    model.up.weight.data[500, 100] = 3.0


def write_numpy(model: Any) -> None:
    model.down.weight.detach().numpy()[7, :] *= -2


def write_rows(model: Any) -> None:
    model.embed.weight.data[[3, 4]] = model.embed.weight.data[[4, 3]]


def load_others(model: Any) -> None:
    torch.manual_seed(77)
    model.load_state_dict(Net().state_dict())


def add_in_place(model: Any) -> None:
    with torch.no_grad():
        model.up.weight.add_(0.1)


def replace_data(model: Any) -> None:
    model.up.weight.data = torch.randn_like(model.up.weight)


@both_forms
def test_every_write_is_seen(form: str, tmp_path: Path) -> None:
    model, _ = net()
    ids = torch.tensor([[3, 4, 5]])
    fast = compiled(model, form, weights="packed", cache_dir=str(tmp_path))
    with torch.no_grad():
        before = fast(ids)
        for write in (write_data, write_numpy, write_rows, load_others, add_in_place, replace_data):
            write(model)
            found = fast(ids)
            same(found, model(ids))
            assert not torch.equal(found, before), write.__name__
            before = found
            for p in model.parameters():
                if p.nbytes >= 1 << 20:
                    p.sum()
            same(fast(ids), before)


def test_written_weights_leave_memory_again(tmp_path: Path) -> None:
    model, ids = net()
    fast = ingot.torch.compile(model, weights="packed", cache_dir=str(tmp_path))
    with torch.no_grad():
        fast(ids)
        load_others(model)
        assert resident(model.up.weight) > 0
        found = fast(ids)
        assert resident(model.up.weight) == 0
        same(found, model(ids))


@both_forms
def test_training_brings_weights_back(form: str, tmp_path: Path) -> None:
    model, ids = net()
    other = copy.deepcopy(model)
    fast = compiled(model, form, weights="packed", cache_dir=str(tmp_path))
    with torch.no_grad():
        fast(ids)
    for call, module in ((fast, model), (other, other)):
        optimizer = torch.optim.SGD(module.parameters(), 1e-3)
        for _ in range(2):
            optimizer.zero_grad()
            call(ids).square().mean().backward()
            optimizer.step()
    same(model.up.weight, other.up.weight)
    with torch.no_grad():
        same(fast(ids), other(ids))


def test_copies_and_forks_have_the_weights(tmp_path: Path) -> None:
    model, ids = net()
    fast = ingot.torch.compile(model, weights="packed", cache_dir=str(tmp_path))
    with torch.no_grad():
        expected = fast(ids)
    total = copy.deepcopy(model).up.weight.double().sum().item()
    child = os.fork()
    if child == 0:  # no thread of torch here: numpy
        os._exit(0 if abs(model.up.weight.detach().numpy().astype("f8").sum() - total) < 1e-6 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with torch.no_grad():
        same(copy.deepcopy(fast)(ids), expected)


def test_weights_that_eager_reads_stay(tmp_path: Path) -> None:
    model, ids = net()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fast = ingot.torch.compile(model, weights="packed", cache_dir=str(tmp_path), disabled_ops="aten.embedding")
        same(fast(ids), model(ids))
        assert resident(model.embed.weight) > 0


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no file system in memory")
def test_a_folder_in_memory_is_refused() -> None:
    model, ids = net()
    with (
        pytest.warns(ingot.torch.FallbackWarning, match="weights stay in memory: .*is in memory, too"),
        torch.no_grad(),
    ):
        import tempfile

        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            fast = ingot.torch.compile(model, weights="packed", cache_dir=folder)
            same(fast(ids), model(ids))
            same(fast(ids), model(ids))


def test_shared_memory_is_not_touched(tmp_path: Path) -> None:
    shared = torch.randn(600, 600).share_memory_()
    moved, problem = move_weights_to_file([shared], str(tmp_path), True)
    assert moved == 0 and "shared memory" in problem
    own = torch.randn(600, 600)
    half = own[200:]  # overlaps
    copied = own.clone()
    watch = WeightWatch([], [], [own, half], True)
    moved, problem = move_weights_to_file([own, half], str(tmp_path), True)
    assert problem == "" and own.nbytes - 2 * PAGE <= moved <= own.nbytes
    assert resident(own) == 0 and watch.same([])
    assert torch.equal(own, copied) and watch.same([])
    assert move_weights_to_file([own], str(tmp_path), True)[0] == moved  # it is there already
    half.numpy()[-50] = 0
    assert not watch.same([])
    copied[-50] = 0
    assert move_weights_to_file([own], str(tmp_path), True)[0] == moved
    assert resident(own) == 0 and torch.equal(own, copied)


def test_option_values() -> None:
    with pytest.raises(ingot.InvalidInputError, match="one of both, packed"):
        ingot.torch.compile(nn.Linear(2, 2), weights="none")
