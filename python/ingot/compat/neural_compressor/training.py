"""`prepare_compression`: training with simulated quantization, in a loop of the user's own."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from torch import nn

import ingot
from ingot.compat.neural_compressor.config import QuantizationAwareTrainingConfig
from ingot.errors import InvalidInputError, UnsupportedError
from ingot.torch_quantizer import PreparedModel, convert

if TYPE_CHECKING:
    import os

    from ingot.exporter import ExportReport


class TrainedModel(nn.Module):  # type: ignore[misc]
    """The model as it trains. Simulated quantization starts with the first call, whose arguments it is prepared with;
    the parameters stay those of the model, so that an optimizer made before that trains them."""

    def __init__(self, model: nn.Module, config: ingot.QuantizationAwareTrainingConfig) -> None:
        super().__init__()
        self.module = copy.deepcopy(model).train()
        self._config = config
        self._prepared: list[PreparedModel] = []  # no submodule: the parameters are in `module`

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.prepared(args, kwargs)(*args, **kwargs)

    def prepared(self, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> PreparedModel:
        if self._prepared:
            return self._prepared[0]
        if args and kwargs:
            raise UnsupportedError("the first call has positional and keyword arguments", "give all by keyword")
        if not args and not kwargs:
            raise InvalidInputError("the model was never called", "train it before it is exported")
        made = ingot.prepare_qat(self.module, self._config, example_inputs=kwargs or args)
        for name, tensor in [*self.module.named_parameters(), *self.module.named_buffers()]:
            owner, _, last = name.rpartition(".")
            part = made.module.get_submodule(owner)
            table = part._parameters if last in part._parameters else part._buffers
            if last in table:
                table[last] = tensor
        self._prepared.append(made.train(self.training))
        return made

    def train(self, mode: bool = True) -> TrainedModel:
        super().train(mode)
        for prepared in self._prepared:
            prepared.train(mode)
        return self


class Callbacks:
    """Places in a training loop. Quantization needs none of them."""

    def on_train_begin(self, dataloader: Any = None) -> None: ...
    def on_train_end(self) -> None: ...
    def on_epoch_begin(self, epoch: int) -> None: ...
    def on_epoch_end(self) -> None: ...
    def on_step_begin(self, batch_id: int) -> None: ...
    def on_step_end(self) -> None: ...
    def on_batch_begin(self, batch_id: int) -> None: ...
    def on_batch_end(self) -> None: ...
    def on_before_optimizer_step(self) -> None: ...
    def on_after_optimizer_step(self) -> None: ...
    def on_after_compute_loss(self, inputs: Any, outputs: Any, loss: Any, teacher_output: Any = None) -> Any:
        return loss


class CompressionManager:
    """`model` is what to train; `export` and `save` write the 8-bit model that it became."""

    def __init__(self, model: nn.Module, config: ingot.QuantizationAwareTrainingConfig) -> None:
        self.model = TrainedModel(model, config)
        self.callbacks = Callbacks()

    @property
    def quantized(self) -> ingot.QuantizedModel:
        """The 8-bit model, as it is now."""
        return convert(self.model.prepared())

    def export(self, save_path: str | os.PathLike[str], conf: Any) -> ExportReport:
        return self.quantized.export(save_path, conf)

    def save(self, path: str | os.PathLike[str]) -> None:
        self.quantized.save(path)


def prepare_compression(model: nn.Module, confs: QuantizationAwareTrainingConfig) -> CompressionManager:
    """What trains a model with simulated quantization. Pruning and distillation are not there."""
    if not isinstance(confs, QuantizationAwareTrainingConfig):
        raise UnsupportedError(f"confs is {type(confs).__name__}", "QuantizationAwareTrainingConfig")
    return CompressionManager(model, confs.config)
