"""What a compiled PyTorch model takes for granted is looked at before every call: no result is an old one."""

from __future__ import annotations

import copy
import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

import ingot.torch
from ingot._ingot import WeightWatch
from ingot.torch import FallbackWarning
from ingot.torch.lowering import lower

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.usefixtures("fresh_dynamo")

X = torch.linspace(-1, 2, 24).reshape(4, 6)
FORMS: dict[str, Callable[[nn.Module], Any]] = {
    "wrapper": ingot.torch.compile,
    "backend": lambda m: torch.compile(m, backend="ingot"),
}


@pytest.fixture
def in_eager_too(fresh_dynamo: None) -> Iterator[None]:
    """What falls back to eager is fine."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        yield


def same(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


class Settings:
    def __init__(self) -> None:
        self.factor, self.steps, self.inner = 2.0, [1.0, 2.0], {"shift": 1.0, "names": {"a"}}


def module_of(function: Callable[..., Any], **attributes: Any) -> Any:
    class Made(nn.Module):  # type: ignore[misc]
        factor = 3.0
        forward = function

        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(6, 6)
            for name, value in attributes.items():
                setattr(self, name, value)

    return Made().eval()


# Results and literals


@pytest.mark.usefixtures("in_eager_too")
@pytest.mark.parametrize("name", ["max", "min", "sort", "median", "topk"])
def test_results_under_names(name: str) -> None:
    model = module_of(lambda self, x: getattr(torch, name)(x * 2, 2 if name == "topk" else 1))
    fast = ingot.torch.compile(model)
    found, expected = fast(X), model(X)
    assert type(found) is type(expected)
    for a, b in zip(found, expected, strict=True):
        assert type(a) is torch.Tensor
        same(a, b)
    same(found.values + 1, expected.values + 1)


def test_a_result_that_hides_tensors_comes_from_eager() -> None:
    fast = ingot.torch.compile(module_of(lambda self, x: iter([x, x + 1])))
    with pytest.warns(FallbackWarning):
        assert [type(t) for t in fast(X)] == [torch.Tensor] * 2
    same(list(fast(X))[1], X + 1)


def test_literals_are_compared_with_their_type() -> None:
    model = module_of(lambda self, x, n: torch.full((2,), n) + 0 * x.sum().to(torch.int32))
    fast = ingot.torch.compile(model)
    for n in (1, True, 1.0, 2, 2.0, False, 0.0, 1):
        found, expected = fast(X, n), model(X, n)
        assert found.dtype == expected.dtype
        same(found, expected)
    signed = module_of(lambda self, x, n: 1 / (x * 0 + n))
    fast = ingot.torch.compile(signed)
    for zero in (0.0, -0.0, 0.0):
        same(fast(X.abs(), zero), signed(X.abs(), zero))


def test_keys_are_compared_with_their_type() -> None:
    model = module_of(lambda self, d: [v * (2.0 if k is True else 3.0) for k, v in d.items()])
    fast = ingot.torch.compile(model)
    for key in (1, True, 1.0):
        same(fast({key: X}), model({key: X}))


# Whatever a forward reads


FACTOR = 2.0
TABLE = {"factor": 2.0}


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * FACTOR * TABLE["factor"]


def with_global(value: float) -> None:
    global FACTOR
    FACTOR = value


def loop(self: Any, x: torch.Tensor) -> torch.Tensor:
    for step in self.settings.steps:
        x = x * step
    return self.fc(x) * self.settings.factor + self.settings.inner["shift"] + ("a" in self.settings.inner["names"])


CHANGES: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "an item of a list": (loop, lambda m: m.settings.steps.__setitem__(0, 5.0)),
    "a longer list": (loop, lambda m: m.settings.steps.append(3.0)),
    "an attribute of an object": (loop, lambda m: setattr(m.settings, "factor", 4.0)),
    "a value of a dict": (loop, lambda m: m.settings.inner.update(shift=7.0)),
    "a set": (loop, lambda m: m.settings.inner["names"].clear()),
    "a global": (lambda self, x: x * FACTOR, lambda m: with_global(9.0)),
    "a global that a function reads": (lambda self, x: scaled(x), lambda m: TABLE.update(factor=8.0)),
    "an attribute of the class": (lambda self, x: x * self.factor, lambda m: setattr(type(m), "factor", 11.0)),
    "a method of the class": (
        lambda self, x: self.fc(x),
        lambda m: setattr(type(m), "forward", lambda self, x: x - 1),
    ),
    "a hook of a child": (lambda self, x: self.fc(x), lambda m: m.fc.register_forward_hook(lambda m, i, o: o * 2)),
    "a tensor, in place": (lambda self, x: x + self.plain, lambda m: m.plain.add_(1)),
    "a tensor, through .data": (lambda self, x: x + self.plain, lambda m: m.plain.data.mul_(3)),
    "a tensor in a list": (lambda self, x: x + self.tensors[0], lambda m: m.tensors[0].add_(1)),
    "an array": (lambda self, x: x + torch.from_numpy(self.array), lambda m: np.add(m.array, 1, out=m.array)),
}


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.usefixtures("in_eager_too")
def test_what_forward_reads_is_never_stale(what: str) -> None:
    function, change = CHANGES[what]
    model = module_of(
        function,
        settings=Settings(),
        plain=torch.ones(6),
        tensors=[torch.ones(6)],
        array=np.ones(6, np.float32),
    )
    fast = ingot.torch.compile(model)
    with torch.no_grad():
        before = model(X)
        same(fast(X), before)
        same(fast(X), before)
        change(model)
        after = type(model).forward(model, X) if what == "a method of the class" else model(X)
        assert not torch.allclose(before, after)
        same(fast(X), after)
        same(fast(X), after)


def test_a_closure_is_looked_at() -> None:
    factor = 2.0

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x * factor

    fast = ingot.torch.compile(module_of(forward))
    same(fast(X), X * 2)
    factor = 5.0
    same(fast(X), X * 5)


def test_an_object_as_argument_is_looked_at() -> None:
    fast = ingot.torch.compile(module_of(lambda self, x, s: x * s.factor))
    settings = Settings()
    same(fast(X, settings), X * 2)
    settings.factor = 6.0
    same(fast(X, settings), X * 6)


def test_unrelated_changes_capture_nothing_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    model = module_of(loop, settings=Settings())
    fast = ingot.torch.compile(model)
    made: list[Any] = []

    def counted(*args: Any, **named: Any) -> Any:
        made.append(args)
        return lower(*args, **named)

    monkeypatch.setattr("ingot.torch.capture.lower", counted)
    with torch.no_grad():
        fast(X)
        model.settings.factor = float("2.0")  # another object, the same number
        model.settings.unread = [1]
        TABLE["other"] = 1.0
        fast(X)
    assert len(made) <= 2
    count = len(made)
    with torch.no_grad():
        fast(X)
    assert len(made) == count


def test_a_recording_hook_records_tensors() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU()).eval()
    seen: list[torch.Tensor] = []
    model[0].register_forward_hook(lambda m, i, o: seen.append(o))
    fast = ingot.torch.compile(model)
    with torch.no_grad(), pytest.warns(FallbackWarning, match="changes"):
        fast(X)
        fast(X + 1)
    assert [type(t) for t in seen] == [torch.Tensor] * 2
    same(seen[1], model[0](X + 1))


def test_tensor_subclasses_stay_what_they_are() -> None:
    class Mine(torch.Tensor):  # type: ignore[misc]
        pass

    fast = ingot.torch.compile(module_of(lambda self, x: self.fc(x) * 2))
    with torch.no_grad(), pytest.warns(FallbackWarning, match="Mine"):
        assert type(fast(X.as_subclass(Mine))) is Mine
    with torch.no_grad():
        assert type(fast(X)) is torch.Tensor


@pytest.mark.usefixtures("in_eager_too")
@pytest.mark.parametrize("parts", [(0, 3, 1, 4), (0, 2, 2, 4), (0, 3, 0, 3), (1, 4, 0, 3)])
def test_views_of_one_storage_that_are_written(parts: tuple[int, int, int, int]) -> None:
    def forward(self: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return b * 2

    model = module_of(forward)
    fast = ingot.torch.compile(model)
    i, j, k, m = parts
    with torch.no_grad():
        fast(torch.zeros(j - i, 4), torch.zeros(m - k, 4))  # apart
        for _ in range(2):
            ours = torch.arange(20.0).reshape(5, 4)
            theirs = ours.clone()
            same(fast(ours[i:j], ours[k:m]), model(theirs[i:j], theirs[k:m]))
            same(ours, theirs)


# Weights


def one_element(w: torch.Tensor) -> None:
    w.data.view(-1)[w.numel() // 3] += 1


def one_row(w: torch.Tensor) -> None:
    w.data[1] = 3.0


def swapped_rows(w: torch.Tensor) -> None:
    rows = w.detach().numpy()
    rows[[0, 2]] = rows[[2, 0]]


def last_element(w: torch.Tensor) -> None:
    w.detach().numpy().reshape(-1)[-1] += 1


def some_elements(w: torch.Tensor) -> None:
    w.data.masked_fill_(torch.arange(w.numel()).reshape(w.shape) % 97 == 5, 1.0)


WRITES = [one_element, one_row, swapped_rows, last_element, some_elements]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [8, 300])  # compared by the process; watched by the kernel where it can
def test_writes_that_torch_does_not_count(form: str, size: int) -> None:
    model = nn.Sequential(nn.Linear(size, size), nn.LayerNorm(size)).eval()
    fast = FORMS[form](model)
    x = torch.randn(3, size)
    with torch.no_grad():
        same(fast(x), model(x))
        for write in WRITES:
            for weight in (model[0].weight, model[1].weight.view(4, -1)):
                write(weight)
                same(fast(x), model(x))


def test_two_models_with_equal_weights_are_two() -> None:
    first = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6)).eval()
    second = copy.deepcopy(first)
    fast_first, fast_second = ingot.torch.compile(first), ingot.torch.compile(second)
    with torch.no_grad():
        fast_first(X), fast_second(X)
        expected = second(X)
        for p in first.parameters():
            p.data.add_(1)
        same(fast_second(X), expected)
        same(fast_first(X), first(X))


def test_sessions_kept_for_other_weights_are_not_taken_for_these() -> None:
    first = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6)).eval()
    second = copy.deepcopy(first)
    with torch.no_grad():
        ingot.torch.compile(first)(X)
        for p in first.parameters():
            p.data.add_(1)
        same(ingot.torch.compile(second)(X), second(X))


def watch_of(*tensors: torch.Tensor) -> WeightWatch:
    return WeightWatch(list(tensors), list(range(len(tensors))), [], True)


def test_several_watches_see_one_write() -> None:
    weights = torch.zeros(100_000), torch.zeros(10)
    first = watch_of(*weights)
    weights[0].data[70_000] = 1
    second = watch_of(*weights)  # begins after the write
    overlapping = watch_of(weights[0][30_000:90_000])
    assert not first.same(list(weights))
    assert second.same(list(weights)) and second.same(list(weights))
    weights[0].numpy()[80_000] = 1
    assert not overlapping.same([weights[0][30_000:90_000]])
    assert not second.same(list(weights))


def test_only_whole_pages_of_a_weight_are_the_kernels() -> None:
    weight = torch.zeros(100_000)
    watch = watch_of(weight)
    assert watch.tracked_bytes + watch.read_bytes == weight.nbytes
    around = torch.zeros(300_000)
    part = around[100_001:200_001]
    watch = watch_of(part)
    around.data[100_000] = around.data[200_001] = 1
    assert watch.same([part])
    for place in (0, -1):
        part.data[place] += 1
        assert not watch.same([part])
        watch = watch_of(part)


@pytest.mark.skipif(sys.platform != "linux", reason="shares memory in Linux's way")
def test_memory_shared_with_another_process_is_read() -> None:
    weight = torch.zeros(100_000).share_memory_()
    watch = watch_of(weight)
    assert watch.tracked_bytes == 0 and watch.same([weight])
    child = os.fork()
    if child == 0:
        weight.numpy()[500] = 1
        os._exit(0)
    os.waitpid(child, 0)
    assert not watch.same([weight])


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_a_forked_process_sees_its_own_writes() -> None:
    weight = torch.zeros(100_000)
    watch = watch_of(weight)
    child = os.fork()
    if child == 0:
        code = 0
        code |= 1 * watch.same([weight]) * (watch.tracked_bytes > 0)  # cannot know: looked at anew
        mine = watch_of(weight)
        code |= 2 * (not mine.same([weight]))
        weight.numpy()[50_000] = 1
        code |= 4 * mine.same([weight])
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert watch.same([weight])


def test_only_versions_count_if_asked_for() -> None:
    model = nn.Linear(6, 6).eval()
    fast = ingot.torch.compile(model, weight_check="version")
    with torch.no_grad():
        before = fast(X)
        model.weight.data[0, 0] += 1
        same(fast(X), before)
        model.weight.add_(1)
        same(fast(X), model(X))


def test_weights_made_under_inference_mode_are_constants() -> None:
    with torch.inference_mode():
        model = nn.Linear(6, 6).eval().requires_grad_(False)
        fast = ingot.torch.compile(model)
        same(fast(X), model(X))
        model.weight[0, 0] += 1
        same(fast(X), model(X))


# Layouts and indices


@pytest.mark.parametrize("form", FORMS)
def test_results_have_the_strides_of_eager(form: str) -> None:
    model = nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last).eval()
    x = torch.randn(2, 3, 9, 9).to(memory_format=torch.channels_last)
    with torch.no_grad():
        expected, found = model(x), FORMS[form](model)(x)
    same(found, expected)
    assert found.stride() == expected.stride()
    found.permute(0, 2, 3, 1).view(2, -1)


@pytest.mark.parametrize("name", ["embedding", "index_select", "gather", "scatter", "index_add"])
def test_negative_indices_are_errors_where_they_are_in_pytorch(name: str) -> None:
    calls: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
        "embedding": lambda x, i: nn.functional.embedding(i, x),
        "index_select": lambda x, i: x.index_select(0, i),
        "gather": lambda x, i: x.gather(0, i[:, None]),
        "scatter": lambda x, i: x.scatter(0, i[:, None], 5.0),
        "index_add": lambda x, i: x.index_add(0, i, torch.ones(len(i), 6)),
    }
    call = calls[name]
    fast = ingot.torch.compile(module_of(lambda self, x, i: call(x, i)))
    with torch.no_grad():
        index = torch.tensor([0, 3, 1])
        same(fast(X, index), call(X, index))
        for wrong in (-1, 4):
            index[1] = wrong
            with pytest.raises((IndexError, RuntimeError)):
                call(X, index)
            with pytest.raises((IndexError, ingot.Error)):
                fast(X, index)
