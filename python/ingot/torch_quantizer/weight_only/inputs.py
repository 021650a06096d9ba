"""What layers are fed with, as far as rounding needs it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

MOST_ROWS = 4096  # of one batch of a convolution: more places of an image tell nothing new


class Inputs:
    """Of one layer: for each of its groups (of a convolution; else one) the sum of x x^T, and the sum of x."""

    def __init__(self) -> None:
        self.products: Tensor | None = None  # [groups, columns, columns]
        self.sums: Tensor | None = None  # [groups, columns]
        self.count = 0

    def add(self, layer: nn.Module, x: Tensor) -> None:
        rows = rows_of(layer, x.detach().float())
        if self.products is None or self.sums is None:
            columns = rows.shape[2]
            self.products, self.sums = torch.zeros(len(rows), columns, columns), torch.zeros(len(rows), columns)
        self.products.baddbmm_(rows.transpose(1, 2), rows)
        self.sums += rows.sum(1)
        self.count += rows.shape[1]

    def hessians(self) -> Tensor:
        assert self.products is not None
        return self.products / max(self.count, 1)

    def mean(self) -> Tensor:
        assert self.sums is not None
        return self.sums / max(self.count, 1)


def rows_of(layer: Any, x: Tensor) -> Tensor:
    """What meets the weight's matrix: [groups, rows, columns]."""
    if isinstance(layer, nn.Linear):
        return x.flatten(0, -2)[None]
    rank = len(layer.kernel_size)
    if x.dim() == rank + 1:
        x = x[None]
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    x = F.pad(x, layer._reversed_padding_repeated_twice, mode)
    for dim, (size, stride, dilation) in enumerate(zip(layer.kernel_size, layer.stride, layer.dilation, strict=True)):
        x = x.unfold(2 + dim, (size - 1) * dilation + 1, stride)[..., ::dilation]
    # [batch, channels, places..., filter...] -> [groups, batch * places, channels of a group * filter]
    x = x.unflatten(1, (layer.groups, -1)).movedim(1, 0).movedim(2, 2 + rank)
    x = x.flatten(1, 1 + rank)
    step = -(-x.shape[1] // MOST_ROWS)
    return x[:, ::step].flatten(2)
