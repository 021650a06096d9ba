"""torch.compile(backend="ingot"): right results for whatever PyTorch programs do, and nothing falls back silently."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from conftest import in_threads
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import ingot
import ingot.torch
from ingot.torch import FallbackWarning, lowering
from ingot.torch.report import collect

if TYPE_CHECKING:
    from collections.abc import Callable


pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def compiled(function: Any, **options: Any) -> Any:
    dynamic, fullgraph = options.pop("torch_dynamic", None), options.pop("fullgraph", False)
    return torch.compile(function, backend="ingot", dynamic=dynamic, fullgraph=fullgraph, options=options or None)


def same(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)).eval()


class Counting:
    """Counts the graphs that the backend gets."""

    def __init__(self, **options: Any) -> None:
        self.graphs, self.options = 0, options

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.graphs += 1
        return ingot.torch.backend(graph, inputs, options=self.options)


def test_backend_is_found_by_name_without_an_import() -> None:
    code = (
        "import sys, torch\n"
        "assert 'ingot' not in sys.modules and 'ingot' in torch._dynamo.list_backends()\n"
        "f = torch.compile(lambda x: x * 2 + 1, backend='ingot')\n"
        "assert torch.equal(f(torch.ones(3)), torch.full((3,), 3.0)) and 'ingot.torch' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", code], check=True, env={**os.environ})


def test_import_of_ingot_imports_no_torch_and_changes_nothing() -> None:
    code = (
        "import sys, ingot\nassert 'torch' not in sys.modules\n"
        "import torch\nimport torch._dynamo, torch._functorch.config, torch.fx.experimental._config\n"
        "c = [torch._dynamo.config, torch._functorch.config, torch.fx.experimental._config]\n"
        "before = [x.save_config_portable() for x in c]\n"
        "state = (torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_num_threads())\n"
        "ingot.torch\n"
        "assert before == [x.save_config_portable() for x in c]\n"
        "assert state == (torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_num_threads())\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_mlp_and_options_none() -> None:
    model, x = mlp(), torch.randn(3, 8)
    with torch.no_grad():
        same(torch.compile(model, backend="ingot")(x), model(x))
        torch._dynamo.reset()
        same(
            torch.compile(model, backend=ingot.torch.backend, options={"compile_options": "-O1 --threads 1"})(x),
            model(x),
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cache_sise": 2}, "did you mean 'cache_size'"),
        ({"cache_size": -1}, "a number from 0 on"),
        ({"cache_size": True}, "a number from 0 on"),
        ({"precision": "fp8"}, "one of fp32, bf16, int8-dynamic"),
        ({"compile_options": "-O7"}, "from 0 to 3"),
        ({"compile_options": "-O\u00b2"}, "from 0 to 3"),
        ({"compile_options": f"--threads {'1' * 5000}"}, "from 0 to 4096"),
        ({"compile_options": "--treads 2"}, "did you mean '--threads'"),
        ({"compile_options": "--march"}, "no value"),
        ({"strict": 1}, "True or False"),
        ({"disabled_ops": [1]}, "a list of texts"),
        ({"tag": "a/b"}, "part of file names"),
        ({"compiler_path": "a", "compiler_image_name": "b"}, "both"),
        ({"compiler_timeout": 0}, "above 0"),
        ({"auto_pull": "yes"}, "True or False"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ingot.InvalidInputError, match=message):
        ingot.torch.backend(torch.fx.symbolic_trace(nn.Identity()), [torch.ones(1)], options=options)
    with pytest.raises(ingot.InvalidInputError, match=message):
        ingot.torch.compile(nn.Identity(), **options)


def test_literals_tell_graphs_apart() -> None:
    x = torch.randn(4)
    for value in (1, 2, 1.5, -0.0, float("inf")):
        torch._dynamo.reset()
        same(compiled(lambda x, v=value: x + v)(x), x + value)
        torch._dynamo.reset()
        same(compiled(lambda x, v=value: (x * v).to(torch.float64))(x), (x * value).to(torch.float64))


def test_same_shapes_but_another_model() -> None:
    x = torch.randn(2, 8)
    with torch.no_grad():
        for seed in range(3):
            torch.manual_seed(seed)
            model = mlp()
            same(compiled(model)(x), model(x))


CHANGES: dict[str, Callable[[nn.Module], Any]] = {
    "add_": lambda m: m[0].weight.add_(1),
    "data =": lambda m: setattr(m[0].weight, "data", torch.randn(16, 8)),
    "data.mul_": lambda m: m[0].weight.data.mul_(3),
    "data.copy_": lambda m: m[3].bias.data.copy_(torch.randn(4)),
    "copy_ of a bias": lambda m: m[0].bias.copy_(torch.randn(16)),
    "load_state_dict": lambda m: m.load_state_dict(mlp().state_dict()),
    "another parameter": lambda m: setattr(m[0], "weight", nn.Parameter(torch.randn(16, 8))),
    "another module": lambda m: m.__setitem__(0, nn.Linear(8, 16)),
    "numpy": lambda m: m[0].weight.detach().numpy().__imul__(2),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("form", [lambda m: compiled(m), ingot.torch.compile], ids=["dynamo", "wrapper"])
def test_changed_weights_are_never_stale(change: str, form: Callable[[nn.Module], Any]) -> None:
    model, x = mlp(), torch.randn(3, 8)
    fast = form(model)
    with torch.no_grad():
        same(fast(x), model(x))
        before = model(x)
        CHANGES[change](model)
        assert not torch.allclose(before, model(x))
        same(fast(x), model(x))


def test_one_graph_serves_modules_of_one_class() -> None:
    class Layer(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.linear(x))

    layers, x = [Layer() for _ in range(6)], torch.randn(2, 8)
    fast = [compiled(layer) for layer in layers]
    with torch.no_grad():
        for _ in range(3):
            for f, layer in zip(fast, layers, strict=True):
                same(f(x), layer(x))


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_shapes(dynamic: bool | None) -> None:
    model, counter = mlp(), Counting()
    fast = torch.compile(model, backend=counter, dynamic=dynamic)
    with torch.no_grad():
        for n in (3, 5, 7, 9, 4):
            x = torch.randn(n, 8)
            same(fast(x), model(x))
    # dynamic=True: once more after dynamo found that eps, which it lifted, is better a constant.
    assert counter.graphs == {None: 2, True: 2, False: 5}[dynamic]


def test_mark_dynamic_and_two_free_dims() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = torch.cat([x, y], 1)
        return z.reshape(-1, z.shape[1] * 2).sum(1) / x.shape[1] + z.shape[0]

    counter = Counting()
    fast = torch.compile(f, backend=counter)
    for batch, a, b in ((4, 3, 2), (6, 5, 4), (8, 2, 9)):
        x, y = torch.randn(batch, a), torch.randn(batch, b)
        for t in (x, y):
            torch._dynamo.mark_dynamic(t, 0)
            torch._dynamo.mark_dynamic(t, 1)
        same(fast(x, y), f(x, y))
    assert counter.graphs == 1


def test_numbers_as_arguments() -> None:
    def f(x: torch.Tensor, n: int, scale: float) -> tuple[torch.Tensor, int]:
        return x[:n] * scale + n, n * 2

    fast = compiled(f)
    for n, scale in ((3, 1.5), (4, 2.5), (5, 3.5), (2, 0.5)):
        x = torch.randn(8, 3)
        found, expected = fast(x, n, scale), f(x, n, scale)
        same(found[0], expected[0])
        assert found[1] == expected[1]


def test_static_sessions_for_a_dynamic_graph() -> None:
    model = mlp()
    fast = torch.compile(model, backend="ingot", dynamic=True, options={"dynamic": False})
    with torch.no_grad():
        for n in (3, 5, 3):
            x = torch.randn(n, 8)
            same(fast(x), model(x))


# What stays in eager


def with_fallback(x: torch.Tensor) -> torch.Tensor:
    y = torch.relu(x @ x.T) + 1
    z = torch.linalg.eigvalsh(y + y.T)
    return torch.tanh(z) * 2 + y.sum()


def test_fallback_is_visible_and_right() -> None:
    x = torch.randn(4, 4)
    with pytest.warns(FallbackWarning, match="linalg"):
        same(compiled(with_fallback)(x), with_fallback(x), 1e-4)
    report = ingot.torch.explain(with_fallback, x)
    assert [f.operator.split(".")[1] for f in report.fallbacks] == ["_linalg_eigh"]
    assert report.graphs[0].blocks == 2 and report.graphs[0].operators["aten.tanh.default"] == 1
    assert "eigh" in str(report)


def test_strict_raises() -> None:
    with pytest.raises(Exception, match=r"cannot be compiled.*_linalg_eigh") as caught:
        compiled(with_fallback, strict=True)(torch.randn(4, 4))
    assert isinstance(getattr(caught.value, "inner_exception", caught.value), ingot.UnsupportedError)


def test_disabled_ops_and_min_block_size() -> None:
    x = torch.randn(4, 4)

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(torch.relu(x) + 1) * 2 - 1

    for name in ("aten.tanh.default", "aten.tanh", "tanh"):
        torch._dynamo.reset()
        with pytest.warns(FallbackWarning, match=r"tanh.*disabled_ops"):
            same(compiled(f, disabled_ops=[name])(x), f(x))
    report = ingot.torch.explain(f, x, ingot_options={"disabled_ops": "tanh", "min_block_size": 3})
    assert report.graphs[0].blocks == 0 and len(report.fallbacks) == 5


def test_graph_breaks_and_fullgraph() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.sigmoid(x) * 2
        torch._dynamo.graph_break()
        return y - x.mean()

    x = torch.randn(5)
    same(compiled(f)(x), f(x))
    report = ingot.torch.explain(f, x)
    assert len(report.graphs) == 2 and len(report.breaks) >= 1
    model = mlp()
    with torch.no_grad():
        same(compiled(model, fullgraph=True)(torch.ones(2, 8)), model(torch.ones(2, 8)))


# Mutation, views, aliasing


class Stateful(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))
        self.scale = nn.Parameter(torch.full((3,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x * self.count * self.scale


@pytest.mark.parametrize("form", [lambda m: compiled(m), ingot.torch.compile], ids=["dynamo", "wrapper"])
def test_mutated_buffers(form: Any) -> None:
    model, x = Stateful(), torch.ones(3)
    fast = form(model)
    with torch.no_grad():
        for step in range(1, 5):
            same(fast(x), x * step * 2)
    same(model.count, torch.full((3,), 4.0))


def test_batch_norm_in_training_updates_its_statistics() -> None:
    a, b = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
    fast = compiled(a)
    for _ in range(3):
        x = torch.randn(6, 4)
        same(fast(x), b(x))
    same(a.running_mean, b.running_mean)
    same(a.running_var, b.running_var)
    assert int(a.num_batches_tracked) == 3


def test_mutated_inputs_and_views() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x.mul_(2)
        y[1:].add_(x[0])
        z = torch.relu(y)
        return x.view(-1), y.t(), z, z[0], x

    fast = compiled(f)
    x, y = torch.randn(3, 3), torch.randn(3, 3)
    x2, y2 = x.clone(), y.clone()
    found, expected = fast(x, y), f(x2, y2)
    for a, b in zip(found, expected, strict=True):
        same(a, b)
        assert a.stride() == b.stride()
    same(x, x2)
    same(y, y2)
    assert found[4] is x and found[0].data_ptr() == x.data_ptr() and found[1].data_ptr() == y.data_ptr()
    assert found[3].data_ptr() == found[2].data_ptr()


def test_in_place_chain_and_duplicate_results() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.clone()
        y.add_(1).mul_(3)
        y[:, 0] = 7
        return y, y, x

    x = torch.randn(3, 4)
    found, expected = compiled(f)(x), f(x)
    same(found[0], expected[0])
    assert found[1] is found[0] and found[2] is x


def test_results_that_eager_lays_out_otherwise() -> None:
    """Element-wise results keep the order of dims in memory, and views are made of them."""

    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.t() * w
        return y.t(), y[0], y.t().view(-1), y

    x, w = torch.randn(3, 4), torch.randn(4, 3, requires_grad=True)
    for fast in (compiled(f), ingot.torch.compile(as_module(f))):
        found, expected = fast(x, w), f(x, w)
        same(found, expected)
        for a, b in zip(found, expected, strict=True):
            assert a.stride() == b.stride()
            assert a.data_ptr() - found[0].data_ptr() == b.data_ptr() - expected[0].data_ptr()


class Scaled(nn.Module):  # type: ignore[misc]
    """A function of an input and a parameter."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((4,), 2.0))
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x, self.scale)


def shared_results(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = torch.relu(x * w)
    return y, y[0]


# What a function does, and whether AOTAutograd's wrappers, which write back and make views, may be left out then.
AROUND_CALLS: dict[str, tuple[Callable[..., Any], bool]] = {
    "new tensors": (lambda x, w: (torch.relu(x) * w, x.sum()), True),
    "a view of an input": (lambda x, w: (x.view(-1), x * w), False),
    "an input is written": (lambda x, w: torch.relu(x.mul_(w)), False),
    "results share memory": (shared_results, False),
    "a node in eager": (lambda x, w: with_fallback(x * w), False),
}


@pytest.mark.parametrize("name", AROUND_CALLS)
@pytest.mark.parametrize("form", [lambda m: compiled(m), ingot.torch.compile], ids=["dynamo", "wrapper"])
def test_wrappers_around_calls_are_left_out_where_they_do_nothing(
    name: str, form: Callable[[nn.Module], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    make = lowering.direct_call

    def noted(*args: Any) -> Any:
        made.append(make(*args))
        return made[-1]

    monkeypatch.setattr(lowering, "direct_call", noted)
    function, left_out = AROUND_CALLS[name]
    model = Scaled(function).eval()
    fast = form(model)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        for _ in range(2):
            x = torch.randn(4, 4)
            copy = x.clone()
            same(fast(x), model(copy), 1e-4)
            same(x, copy)
        model.scale.mul_(3)
        same(fast(x), model(copy), 1e-4)
    assert [len(found) for found in made] == [1] * left_out


# Kinds of tensors


def as_module(function: Callable[..., Any]) -> nn.Module:
    class Module(nn.Module):  # type: ignore[misc]
        def forward(self, *args: Any) -> Any:
            return function(*args)

    return Module()


FORMS = {"dynamo": lambda f: compiled(f), "wrapper": lambda f: ingot.torch.compile(as_module(f))}


KINDS = {
    "transposed": torch.randn(6, 4).t(),
    "strided": torch.randn(8, 8)[::2, 1::3],
    "expanded": torch.randn(4, 1).expand(4, 5),
    "rank 0": torch.tensor(2.5),
    "empty": torch.randn(0, 3),
    "int64": torch.arange(12).reshape(3, 4),
    "int32": torch.arange(12, dtype=torch.int32).reshape(3, 4),
    "uint8": torch.arange(12, dtype=torch.uint8).reshape(3, 4),
    "float64": torch.randn(3, 4, dtype=torch.float64),
    "bfloat16": torch.randn(3, 4).to(torch.bfloat16),
    "float16": torch.randn(3, 4).to(torch.float16),
    "channels last": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("x", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_kinds_of_tensors(x: torch.Tensor, form: Any) -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x * 2 + 1, (x > 1).sum(), x.sum(), x.abs()

    tolerance = {torch.bfloat16: 2e-2, torch.float16: 2e-3}.get(x.dtype, 1e-5)
    same(form(f)(x), f(x), tolerance)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_bool_and_mixed_types(form: Any) -> None:
    def f(m: torch.Tensor, x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.where(m, x, i), ~m, m & (x > 0), i / 2, i // 2, x + i

    args = (torch.tensor([True, False, True]), torch.randn(3), torch.tensor([5, -3, 2]))
    same(form(f)(*args), f(*args))


class Spectral(nn.Module):  # type: ignore[misc]
    """A filter of complex weights, and a rotation by a table of complex numbers."""

    table: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(4, 5, dtype=torch.complex64))
        self.register_buffer("table", torch.polar(torch.ones(6, 4), torch.rand(6, 4)))
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.fft.irfft(torch.einsum("bti,oi->bto", torch.fft.rfft(self.layer(x)), self.weight), n=8)
        z = torch.view_as_complex(y.reshape(*y.shape[:-1], 4, 2)) * self.table[: y.shape[1]]
        return torch.view_as_real(z).flatten(2), z.conj(), z.transpose(0, 2)


@pytest.mark.parametrize(
    "form", [lambda m: compiled(m, strict=True, verify=2), lambda m: ingot.torch.compile(m, strict=True)]
)
def test_complex_numbers(form: Any) -> None:
    model = Spectral().eval()
    fast = form(model)
    with torch.no_grad():
        for batch, length in ((2, 5), (3, 6), (3, 4)):
            x = torch.randn(batch, length, 8)
            found, expected = fast(x), model(x)
            same(found, expected)
            assert found[2].stride() == expected[2].stride()
        model.weight.mul_(1j)
        model.table.conj_physical_()
        same(fast(x), model(x))


def test_complex_arguments_constants_and_parts_in_eager() -> None:
    constant = torch.randn(4, dtype=torch.complex128)

    def f(z: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (z.exp() * constant).abs() + (w @ z.T).real.sum(0)[:, None], w.imag

    z, w = (torch.randn(3, 4, dtype=torch.complex128) for _ in range(2))
    for given in ((z, w), (z.conj(), w), (z, w[:, ::2].repeat(1, 2).conj())):
        same(compiled(f, strict=True)(*given), f(*given), 1e-12)
    with pytest.warns(FallbackWarning, match="disabled_ops"):
        same(compiled(f, disabled_ops=["aten.exp"])(z, w), f(z, w), 1e-12)


def test_gradients_through_fourier_transforms() -> None:
    def gradients(step: Any) -> list[torch.Tensor]:
        model.zero_grad()
        y, z, _ = step(x)
        (y.square().sum() + z.abs().sum()).backward()
        return [p.grad.clone() for p in model.parameters()]

    model, x = Spectral(), torch.randn(2, 5, 8)
    same(gradients(compiled(model)), gradients(model), 1e-4)


def test_windows_of_a_signal() -> None:
    def f(x: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
        return torch.stft(x, 16, 4, window=window, return_complex=True).abs().clamp_min(1e-3).log()

    x, window = torch.randn(2, 100), torch.hann_window(16)
    same(compiled(f, strict=True)(x, window), f(x, window))


def causal(b: Any, h: Any, i: Any, j: Any) -> Any:
    return i >= j


def test_flex_attention_of_any_length() -> None:
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])

    def f(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        def score(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            return score + slopes[h] * (j - i)

        def window(b: Any, h: Any, i: Any, j: Any) -> Any:
            return causal(b, h, i, j) & (i - j < 3)

        mask = create_block_mask(window, None, None, q.shape[2], k.shape[2], device="cpu")
        return flex_attention(q, k, v, score_mod=score, block_mask=mask, enable_gqa=True).relu()

    fast = compiled(f, strict=True, fullgraph=True, torch_dynamic=True)
    for length in (6, 9):
        q, k, v = (torch.randn(2, heads, length, 8) for heads in (4, 2, 2))
        same(fast(q, k, v), f(q, k, v))


class Choice(nn.Module):  # type: ignore[misc]
    """Two branches with weights, one with a choice in it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        def low(x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.max() > 3, lambda x: self.a(x).sin(), lambda x: self.a(x) - 1, (x,))

        def high(x: torch.Tensor) -> torch.Tensor:
            return self.b(x).relu()[index.abs() * 0 + index]  # an error for low

        y = torch.cond(x.sum() > 0, high, low, (x.cos(),))
        return y.exp() + 1


def test_branches_are_compiled_and_only_one_is_run() -> None:
    model = Choice().eval()
    fast = compiled(model, strict=True, fullgraph=True, verify=1)
    far, near = torch.tensor([7, 0]), torch.tensor([1, 0])
    x = torch.rand(2, 8)
    with torch.no_grad(), collect() as report:
        for given in ((-x, far), (x, near), (-x - 1, far)):
            same(fast(*given), model(*given))
        with pytest.raises(Exception, match=r"out of bounds|out of range"):
            fast(x, far)
        model.a.bias.add_(1)
        same(fast(-x, far), model(-x, far))
    assert not report.fallbacks and [g.kind for g in report.graphs].count("branch") == 4


def test_branches_train() -> None:
    model = Choice()

    def gradients(step: Any, x: torch.Tensor) -> list[Any]:
        model.zero_grad()
        step(x, torch.tensor([1, 0])).sum().backward()
        return [p.grad for p in model.parameters()]

    with collect() as report:
        for x in (torch.rand(2, 8), -torch.rand(2, 8)):
            same(gradients(compiled(model), x), gradients(torch.compile(model, backend="eager"), x))
    assert not report.fallbacks


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_tensors_of_other_devices_stay_in_eager(form: Any) -> None:
    """CUDA has the same way; there is none where this is tested."""
    x = torch.empty(3, 4, device="meta")
    with pytest.warns(FallbackWarning, match="tensors on the device meta"):
        found = form(lambda x: x * 2 + 1)(x)
    assert found.device.type == "meta" and found.shape == (3, 4)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="tensors on the device meta"):
        compiled(lambda x: x * 2 + 1, strict=True)(x)


def test_autocast_region() -> None:
    model, x = mlp(), torch.randn(3, 8)

    def f(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(x)

    with torch.no_grad():
        found, expected = compiled(f)(x), f(x)
        assert found.dtype == expected.dtype
        same(found, expected, 3e-2)
        same(compiled(model)(x), model(x))
        fast = ingot.torch.compile(model)
        same(fast(x), model(x))
        with torch.autocast("cpu", torch.bfloat16):
            assert fast(x).dtype == model(x).dtype
            same(fast(x), model(x), 3e-2)
        same(fast(x), model(x))


def test_inference_mode() -> None:
    model, x = mlp(), torch.randn(3, 8)
    fast = compiled(model)
    with torch.inference_mode():
        for _ in range(2):
            same(fast(x), model(x))
        made_inside = mlp()
        same(compiled(made_inside)(x), made_inside(x))
        made_inside[0].weight.mul_(2)
        same(compiled(made_inside)(x), made_inside(x))


# Training


def test_training_loop() -> None:
    def losses(make: Callable[[nn.Module], Any]) -> list[float]:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16), nn.GELU(), nn.Linear(16, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        x, y = torch.randn(16, 8), torch.randn(16, 1)
        fast, out = make(model), []
        for _ in range(20):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(fast(x), y)
            loss.backward()
            optimizer.step()
            out.append(loss.item())
        with torch.no_grad():
            same(fast(x), model(x))
        return out

    eager = losses(lambda m: m)
    assert eager[-1] < eager[0] / 2
    assert losses(compiled) == pytest.approx(eager, rel=1e-4)
    assert losses(ingot.torch.compile) == pytest.approx(eager, rel=1e-4)


def test_gradients_of_inputs_and_of_views() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (torch.softmax(x @ w, -1) * x[:, :3]).sum(1).pow(2)

    def gradients(function: Any) -> list[torch.Tensor]:
        torch.manual_seed(2)
        x, w = torch.randn(4, 5, requires_grad=True), torch.randn(5, 3, requires_grad=True)
        function(x, w).sum().backward()
        return [x.grad, w.grad]

    same(gradients(compiled(f)), gradients(f))


def test_dropout_and_frozen_parameters() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    model[0].weight.requires_grad_(False)
    x = torch.ones(4, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        fast = compiled(model)
        first, second = fast(x), fast(x)
        assert first.requires_grad and not torch.equal(first, second)
        first.sum().backward()
    assert model[0].weight.grad is None and model[2].weight.grad is not None


# Weights


@pytest.mark.parametrize("kind", ["linear", "embedding"])
def test_weights_in_place_and_packed_are_counted(kind: str) -> None:
    """A table that is only read from is used where it lies; matrices are packed, once."""
    model = (nn.Linear(64, 96) if kind == "linear" else nn.Embedding(500, 64)).eval()
    x = torch.randn(3, 64) if kind == "linear" else torch.arange(12)
    ingot.torch.clear_cache()
    with torch.no_grad():
        report = ingot.torch.explain(model, x)
    (graph,) = report.graphs
    memory, size = graph.weight_memory, model.weight.nbytes
    assert graph.weight_bytes == sum(p.nbytes for p in model.parameters())
    if kind == "linear":
        assert memory.packed >= size and memory.in_place < size
    else:
        assert memory.in_place == size and memory.packed < size / 10
    assert ingot.torch.cache_info().weights == memory
    assert "used in place" in str(report) and "packed" in str(report)


# Precision, verification, interception, dumps


def test_precision() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32)).eval(), torch.randn(4, 64)
    with torch.no_grad():
        exact = model(x)
        for precision, most in (("bf16", 2e-2), ("int8-dynamic", 5e-2)):
            torch._dynamo.reset()
            error = (compiled(model, precision=precision)(x) - exact).abs().max() / exact.abs().max()
            assert 1e-6 < error < most


def test_verify_names_the_first_wrong_node(monkeypatch: pytest.MonkeyPatch) -> None:
    from ingot.torch.translate import registry

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(torch.softmax(x @ x.T, -1) @ x) @ x.T

    x = torch.randn(4, 4)
    same(compiled(f, verify=True)(x), f(x))
    torch._dynamo.reset()
    ingot.torch.clear_cache()
    right = registry.find_rule(torch.ops.aten.tanh.default)
    assert right is not None
    monkeypatch.setitem(
        registry._RULES, torch.ops.aten.tanh.default, lambda e, x: e.mul(right(e, x), e.number(2.0, torch.float32))
    )
    with pytest.raises(ingot.torch.VerificationError, match=r"first node that differs is tanh"):
        compiled(f, verify=True)(x)


def test_intercept_option(capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[dict[str, Any]] = []
    model = mlp()
    with torch.no_grad():
        compiled(model, intercept=seen.append)(torch.full((2, 8), 0.5))
    assert "Tensor [2, 8] float32 cpu 0.5 .. 0.5" in capfd.readouterr().err
    assert [t.shape for t in seen[0].values()] == [(2, 8)]


def test_dump_onnx(tmp_path: Any) -> None:
    import numpy as np

    model, x = mlp(), torch.randn(2, 8)
    with torch.no_grad():
        expected = compiled(model, dump_onnx=str(tmp_path), tag="mine")(x)
    (path,) = tmp_path.glob("mine-*.onnx")
    (found,) = ingot.compile(path).inference([x.numpy()]).values()
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-6)


def test_eight_threads_call_one_model() -> None:
    model = mlp()
    fast = compiled(model, torch_dynamic=True)
    inputs = [torch.randn(n + 2, 8) for n in range(8)]
    with torch.no_grad():
        expected = [model(x) for x in inputs]
        fast(inputs[0])
    right: list[int] = []

    def work(i: int) -> None:
        with torch.no_grad():
            for _ in range(30):
                if torch.allclose(fast(inputs[i]), expected[i], atol=1e-5):
                    right.append(i)

    in_threads(8, work)
    assert len(right) == 240


def test_no_recompilation_when_the_backend_is_named_again() -> None:
    model, x = mlp(), torch.randn(2, 8)
    counter = CompileCounterWithBackend("ingot")
    with torch.no_grad():
        for _ in range(3):
            same(torch.compile(model, backend=counter)(x), model(x))
    assert counter.frame_count == 1
