"""Operators that Ingot defines by others, beside PyTorch's kernels for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from test_torch_translate import BF16, F32, F64, I64, U8, check, sample
from torch import nn

import ingot.torch

if TYPE_CHECKING:
    from collections.abc import Callable

aten = torch.ops.aten
NAN = float("nan")


def values(*results: Any) -> Any:
    """Places of equal values are PyTorch's choice, which is not defined."""
    return tuple(r[0] for r in results)


def distinct(x: torch.Tensor) -> torch.Tensor:
    return x + torch.arange(x.numel(), dtype=x.dtype).reshape(x.shape) / 64


FREE: dict[str, Callable[[Any], Any]] = {
    "median": lambda x: (x.median(), *distinct(x).median(1), *distinct(x).median(0, keepdim=True)),
    "nanmedian": lambda x: (torch.where(x > 2, NAN, x).nanmedian(), *distinct(x).nanmedian(-1)),
    "median_nan": lambda x: (torch.where(x > 3, NAN, x).median(), *torch.where(x > 3, NAN, distinct(x)).median(1)),
    "kthvalue": lambda x: (*distinct(x).kthvalue(2), *distinct(x).kthvalue(1, 0, True)),
    "mode": lambda x: values(x.round().mode(), x.round().mode(0, True), x.mode(1)),
    "erfinv": lambda x: torch.erfinv(x / 4.2),
    "scatter_mean": lambda x: (
        torch.scatter_reduce(x, 0, (x.abs() % 2).long(), x * 2, "mean"),
        torch.scatter_reduce(x, 0, (x.abs() % 2).long(), x * 2, "mean", include_self=False),
    ),
    "bag": lambda x: tuple(
        F.embedding_bag((x.abs() * 9).long().reshape(-1) % 5, x[:5, :3], torch.tensor([0, 3, 3, 7]), mode=mode)
        for mode in ("sum", "mean", "max")
    ),
    "bag_weighted": lambda x: F.embedding_bag(
        torch.tensor([[0, 2], [1, 1], [3, 2]]), x, mode="sum", per_sample_weights=x[:3, :2]
    ),
    "bag_padded": lambda x: F.embedding_bag(
        torch.tensor([1, 0, 2, 1, 1]), x, torch.tensor([0, 3, 5]), mode="mean", padding_idx=1, include_last_offset=True
    ),
    "histc": lambda x: (torch.histc(x, 7, -2, 3), torch.histc(x.abs().floor(), 4, 0, 3)),
    "unique": lambda x: torch.unique(x.round(), return_inverse=True, return_counts=True),
    "unique_rows": lambda x: torch.unique((x > 0).long(), dim=0),
}


@pytest.mark.parametrize("name", FREE)
def test_of_any_size(name: str) -> None:
    modes = ("symbolic",) if name.startswith("unique") else ("fake", "symbolic")
    check(FREE[name], sample(F32, 6, 5), modes=modes)


@pytest.mark.parametrize("ends", [[2, 2, 5], [0, 6, 6], [3, 4, 6]])
def test_products_of_rows_in_groups(ends: list[int]) -> None:
    """One matrix for each group of rows, as mixtures of experts have them; rows in no group are 0."""
    from transformers.integrations import moe  # noqa: F401  registers its operator

    def rows(x: torch.Tensor, w: torch.Tensor, offs: torch.Tensor) -> Any:
        narrow = torch._grouped_mm(x.to(BF16), w.to(BF16), offs=offs)[: ends[-1]]
        return torch.ops.transformers.grouped_mm_fallback(x, w, offs), narrow

    check(rows, sample(F32, 6, 8), sample(F32, 3, 8, 16), torch.tensor(ends, dtype=torch.int32), modes=("fake",))


def spd(x: torch.Tensor) -> torch.Tensor:
    return x @ x.mT + torch.eye(x.shape[-2], dtype=x.dtype)


FIXED: dict[str, Callable[[Any], Any]] = {
    "cummax": lambda x: (*x.cummax(1), *x.round().cummax(0), *x.long().cummax(-1), *(x > 0).cummax(1)),
    "cummin": lambda x: (*x.cummin(1), *torch.where(x > 2, NAN, x).cummin(0)),
    "logcumsumexp": lambda x: ((x * 9).logcumsumexp(1), torch.where(x > 2, -torch.inf, x).logcumsumexp(0)),
    "as_strided": lambda x: torch.as_strided(x + 1, (3, 2), (7, 2), 1),
    "as_strided of another order": lambda x: torch.as_strided((x + 1).t(), (3, 2), (7, 2), 1),
    "as_strided of a part": lambda x: torch.as_strided((x + 1)[1:], (2, 2), (3, 1)),
    "as_strided_scatter of another order": lambda x: torch.as_strided_scatter(
        (x + 1).t(), x[:3, :2] * 5, (3, 2), (7, 2), 1
    ),
    "as_strided_scatter": lambda x: torch.as_strided_scatter(x + 1, x[:3, :2] * 5, (3, 2), (7, 2), 1),
    "adaptive_max_pool": lambda x: (
        *F.adaptive_max_pool2d(x[None], (4, 3), return_indices=True),
        F.adaptive_max_pool1d(x, 2),
    ),
    "inv": lambda x: (torch.linalg.inv(spd(x)), torch.linalg.inv(spd(x[:1]))),
    "det": lambda x: (torch.det(spd(x)), torch.det(x[:5, :5] - 1), torch.det(torch.zeros(2, 2) * x[0, 0])),
    "slogdet": lambda x: torch.linalg.slogdet(x[:5, :5]),
    "solve": lambda x: (torch.linalg.solve(spd(x), x), torch.linalg.solve(spd(x), x[:, 0])),
    "cholesky": lambda x: (torch.linalg.cholesky(spd(x)), torch.linalg.cholesky(spd(x), upper=True)),
}


@pytest.mark.parametrize("name", FIXED)
def test_of_sizes_that_are_known(name: str) -> None:
    """Checks of errors run in eager: they are not part of what is translated."""
    function = FIXED[name]
    dtype = F64 if name in ("inv", "det", "slogdet", "solve", "cholesky") else F32

    class Made(nn.Module):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> Any:
            return function(x)

    x = sample(dtype, 6, 5)
    with ingot.torch.report.collect() as report, torch.no_grad():
        found = ingot.torch.compile(Made())(x)
    assert {f.operator for f in report.fallbacks} <= {"with_effects"} and not report.problems and not report.breaks, (
        str(report)
    )
    torch.testing.assert_close(found, function(x), rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("dtype", [I64, U8, F64])
def test_other_types(dtype: Any) -> None:
    check(lambda x: values(x.kthvalue(2), x.mode(1), x.median(1)), sample(dtype, 4, 5), modes=("fake",))


def test_singular_matrices_are_errors() -> None:
    class Inverts(nn.Module):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> Any:
            return torch.linalg.inv(x)

    fast = ingot.torch.compile(Inverts())
    with torch.no_grad(), pytest.warns(ingot.torch.FallbackWarning):
        fast(torch.eye(3))
        with pytest.raises(torch.linalg.LinAlgError):
            fast(torch.zeros(3, 3))


@pytest.mark.parametrize("masked", ["", "keys", "both"])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.usefixtures("fresh_dynamo")
def test_fast_path_of_a_transformer_is_compiled(masked: str, norm_first: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", batch_first=True, norm_first=norm_first).eval()
    x = torch.randn(2, 5, 8)
    masks: dict[str, Any] = {}
    if masked:
        masks["src_key_padding_mask"] = torch.arange(5) >= torch.tensor([[5], [3]])
    if masked == "both":
        masks["src_mask"] = torch.ones(5, 5).triu(1).bool()
    with torch.no_grad():
        report = ingot.torch.explain(layer, x, **masks)
        assert not report.fallbacks and not report.breaks, str(report)
        found = torch.compile(layer, backend="ingot")(x, **masks)
        torch.testing.assert_close(found, layer(x, **masks), rtol=1e-5, atol=1e-5)
