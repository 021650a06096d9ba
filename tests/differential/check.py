"""check(case): what differs where docs/guarantees.md says that nothing does.

    one program     session, Engine IR saved and loaded, model.so; 1 and 2 threads; native and specialised kernels
                    every bit of every output
    opt levels      0, 1, 2, 3; exact outputs in every element, close ones within measured rounding
    targets         x86-64-v2 and the CPU's own, as opt levels
    other sizes     inputs of other sizes: opt levels 0 and 3 give the same or are errors both
    onnxruntime     as opt levels; where it differs, the ONNX reference evaluator is asked, and a finding is what
                    differs from both. What a peer cannot run is not compared with it.

Rounding is measured: the model is run with every float tensor changed by half a unit of its last place, at random,
three times. What that does to an output, times 16, is what two correct programs may differ by.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import modes
import numpy as np
from differential.builder import FLOATS, MANTISSA, Case, numpy_type, tensor_of
from differential.reduce import pruned
from onnx import TensorProto as T
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import ingot

if TYPE_CHECKING:
    from pathlib import Path

    Outputs = dict[str, Any]

RUNS = 3  # with noise
# What onnx.reference does in its own way: recurrent layers forward only, Erf in f32, no empty words, LRN in as many
# channels as there are images.
NOT_IN_REFERENCE = {"StringNormalizer", "GRU", "LSTM", "RNN", "Erf", "LRN"}
ROOM = 16
FORGETFUL = {"Shape", "Size", "EyeLike", "ConstantOfShape", "If", "Loop", "Scan", "BatchNormalization"}


@dataclass
class Finding:
    what: str
    detail: str
    output: str = ""


@dataclass
class Comparison:
    """What was compared, for the figures."""

    findings: list[Finding]
    onnxruntime: bool = False
    reference: bool = False
    library: bool = False
    refused: bool = False
    outputs: int = 0


def is_float(array: Any) -> bool:
    return isinstance(array, np.ndarray) and (array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16)


def message(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


class Checker:
    """One case, written to a folder."""

    def __init__(self, case: Case, folder: Path, library: bool = False, peers: bool = True) -> None:
        self.case, self.folder = case, folder
        self.library, self.peers = library, peers
        self.path = folder / "model.onnx"
        self.path.write_bytes(case.model.SerializeToString())
        self.result = Comparison([])

    def run(self, level: int, inputs: Outputs | None = None, **options: Any) -> Outputs:
        options = {"threads": 1, **options}
        return ingot.compile(self.path, opt_level=level, **options).inference(inputs or self.case.inputs)

    def found(self, what: str, detail: str, output: str = "") -> None:
        self.result.findings.append(Finding(what, detail, output))

    # --- comparisons

    def same_bits(self, what: str, found: Outputs, expected: Outputs) -> None:
        for name, one in expected.items():
            other = found.get(name)
            if other is None or other.shape != one.shape or other.dtype != one.dtype:
                self.found(what, f"{name}: {getattr(other, 'shape', None)} instead of {one.shape}", name)
                return
            same = (other == one).all() if one.dtype == object else other.tobytes() == one.tobytes()
            if not same:
                self.found(what, f"{name}: {first_difference(other, one)}", name)
                return

    def alike(self, what: str, found: Outputs, expected: Outputs, room: dict[str, Any]) -> list[Finding]:
        """Outputs by their kinds."""
        result = []
        for name, one in expected.items():
            kind, other = self.case.kinds[name], np.asarray(found[name])
            if other.shape != one.shape or (other.dtype != one.dtype and object not in (other.dtype, one.dtype)):
                result.append(Finding(what, f"{name}: {other.dtype}{other.shape}, not {one.dtype}{one.shape}", name))
                continue
            if kind == "wild":
                continue
            if one.dtype == object or one.dtype.kind in "OUS":
                same = [text(x) for x in other.ravel()] == [text(x) for x in one.ravel()]
                if not same:
                    result.append(Finding(what, f"{name}: {other!r} instead of {one!r}", name))
                continue
            a, e = other.astype(np.float64), one.astype(np.float64)
            if one.dtype.kind in "iub":
                wrong = other != one
                if kind == "step":
                    wrong = np.abs(a - e) > 1
            elif kind == "exact":
                wrong = ~((a == e) | (np.isnan(a) & np.isnan(e)))
            else:
                steady = np.isfinite(e) & np.isfinite(room[name])
                with np.errstate(invalid="ignore"):
                    wrong = steady & ~(np.abs(a - e) <= room[name])
            if wrong.any():
                detail = f"{name} ({kind}): {first_difference(a, e, wrong)}"
                result.append(Finding(what, detail, name))
        return result

    def rounding(self, base: Outputs, inputs: Outputs) -> dict[str, Any]:
        """How far each element of a close output may be off."""
        if not any(self.case.kinds[name] == "close" for name in base):
            return {}
        noisy = Noise(self.case, self.path, inputs)
        spread = {name: np.zeros(a.shape) for name, a in base.items() if is_float(a)}
        for seed in range(RUNS):
            found = noisy.run(seed, self.folder / "noisy.onnx")
            with np.errstate(invalid="ignore"):
                for name in spread:
                    off = np.abs(found[name].astype(np.float64) - base[name].astype(np.float64))
                    spread[name] = np.maximum(spread[name], off)
        result = {}
        for name, off in spread.items():
            finite = off[np.isfinite(off)]
            typical = float(np.sqrt((finite**2).mean())) if finite.size else 0.0
            own = eps_of(base[name].dtype) * np.abs(base[name].astype(np.float64))
            result[name] = ROOM * (np.maximum(off, typical) + own) + 1e-30
        return result

    # --- the ways

    def check(self) -> Comparison:
        case = self.case
        try:
            graph = ingot.compile(self.path, threads=1)
            base = graph.inference(case.inputs)
        except ingot.Error as error:
            self.refusal(error)
            return self.result
        self.result.outputs = len(base)
        levels = {level: self.attempt(f"opt level {level}", level) for level in (0, 1, 2)}
        if levels[0] is None:
            return self.result
        try:
            room = self.rounding(levels[0], case.inputs)
        except ingot.Error as error:
            self.found("noise", message(error))
            return self.result
        for level, found in levels.items():
            if found is not None:
                self.result.findings += self.alike(f"opt level {level}", found, base, room)
        older = self.attempt("target x86-64-v2", 3, march="x86-64-v2")
        if older is not None:
            self.result.findings += self.alike("target x86-64-v2", older, base, room)
        two = self.attempt("2 threads", 3, threads=2)
        if two is not None:
            self.same_bits("2 threads", two, base)
        waited = self.attempt("specialised", 3, wait=True)
        if waited is not None:
            self.same_bits("specialised", waited, base)
        self.forms(graph, base)
        if self.peers:
            self.beside_peers(base, room)
            self.other_sizes(graph)
        return self.result

    def attempt(self, what: str, level: int, **options: Any) -> Outputs | None:
        try:
            return self.run(level, **options)
        except ingot.Error as error:
            self.found(what, message(error))
            return None

    def refusal(self, error: ingot.Error) -> None:
        """A model that Ingot calls wrong although another runs it is a finding; what is not served may be refused."""
        self.result.refused = True
        if isinstance(error, ingot.InternalError):
            self.found("internal error", message(error))
        try:
            modes.onnxruntime(self.case.model, self.case.inputs, self.folder, optimised=False)
        except Exception:
            return
        if not isinstance(error, ingot.UnsupportedError):
            self.found("refused", message(error))

    def forms(self, graph: ingot.Graph, base: Outputs) -> None:
        try:
            graph.save(self.folder / "ir")
            self.same_bits("IR", ingot.load(self.folder / "ir", threads=1).inference(self.case.inputs), base)
            if self.library:
                self.result.library = True
                graph.emit(self.folder / "model.so")
                loaded = ingot.load(self.folder / "model.so", threads=1)
                self.same_bits("model.so", loaded.inference(self.case.inputs), base)
        except ingot.Error as error:
            self.found("forms", message(error))

    def beside_peers(self, base: Outputs, room: dict[str, Any]) -> None:
        case = self.case
        names = [port.name for port in case.model.graph.output]
        try:
            peer = modes.onnxruntime(case.model, case.inputs, self.folder, optimised=False)
        except Exception:
            differences = None  # it has no such kernel
        else:
            self.result.onnxruntime = True
            differences = self.alike("onnxruntime", base, dict(zip(names, peer, strict=True)), room)
            if not differences:
                return
        if differences is None:
            self.result.findings += self.judged(names, base, room) or []
            return
        for finding in differences:
            wrong = self.judged([finding.output], base, room)
            if wrong is None or wrong:
                self.result.findings.append(finding)

    def judged(self, names: list[str], base: Outputs, room: dict[str, Any]) -> list[Finding] | None:
        """What differs from the ONNX reference evaluator in these outputs; None where it cannot tell."""
        part = pruned(self.case, names)
        if any(node.op_type in NOT_IN_REFERENCE for node in part.model.graph.node):
            return None
        try:
            with np.errstate(all="ignore"):
                judge = ReferenceEvaluator(part.model).run(None, part.inputs)
        except Exception:
            return None
        self.result.reference = True
        by_name = {port.name: np.asarray(a) for port, a in zip(part.model.graph.output, judge, strict=True)}
        try:
            return self.alike("reference", base, by_name, room)
        except (TypeError, ValueError):
            return None

    def other_sizes(self, graph: ingot.Graph) -> None:
        inputs = self.case.more_inputs
        if not inputs:
            return
        try:
            low: Outputs | ingot.Error = self.run(0, inputs)
        except ingot.Error as error:
            low = error
        try:
            high: Outputs | ingot.Error = graph.inference(inputs)
        except ingot.Error as error:
            high = error
        for outcome in (low, high):
            if isinstance(outcome, ingot.InternalError):
                self.found("other sizes", message(outcome))
                return
        if isinstance(low, ingot.Error) or isinstance(high, ingot.Error):
            if isinstance(low, ingot.Error) != isinstance(high, ingot.Error) and not self.may_forget_errors():
                low_text, high_text = (message(x) if isinstance(x, ingot.Error) else "runs" for x in (low, high))
                self.found("other sizes", f"level 0: {low_text}; level 3: {high_text}")
            return
        try:
            room = self.rounding(low, inputs)
        except ingot.InvalidModelError:
            return  # the noise has fixed sizes, and a node that nobody reads may be wrong at these: no run meets it
        except ingot.Error as error:
            self.found("noise", message(error))
            return
        self.result.findings += self.alike("other sizes", high, low, room)

    def may_forget_errors(self) -> bool:
        """Optimised, a model need not compute what only gives a shape, nor do BatchNormalization by itself."""
        return any(node.op_type in FORGETFUL for node in self.case.model.graph.node)


class Noise:
    """The model with every float tensor of the main graph changed by half a unit of its last place, up or down."""

    def __init__(self, case: Case, path: Path, inputs: Outputs) -> None:
        self.model, self.inputs = case.model, inputs
        made = [name for node in case.model.graph.node for name in node.output if name]
        graph = ingot.compile(path, opt_level=0, threads=1)
        known = tensors_of(graph, made, inputs)
        self.shapes = {name: (known[name].shape, known[name].dtype) for name in known if is_float(known[name])}

    def run(self, seed: int, path: Path) -> Outputs:
        random = np.random.default_rng(seed)
        model = copy.deepcopy(self.model)
        nodes = []
        for node in model.graph.node:
            nodes.append(node)
            for i, name in enumerate(node.output):
                if name not in self.shapes:
                    continue
                shape, dtype = self.shapes[name]
                node.output[i] = f"{name}/exact"
                array = self.changed(np.ones(shape, dtype), random)
                kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
                model.graph.initializer.append(tensor_of(array, kind, f"{name}/noise"))
                nodes.append(helper.make_node("Mul", [f"{name}/exact", f"{name}/noise"], [name]))
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        for tensor in model.graph.initializer:
            if tensor.data_type in FLOATS and not (tensor.name.endswith("/noise") or tensor.name.startswith("p")):
                array = numpy_helper.to_array(tensor).astype(numpy_type(tensor.data_type))
                tensor.CopyFrom(tensor_of(self.changed(array, random), tensor.data_type, tensor.name))
        path.write_bytes(model.SerializeToString())
        inputs = {
            name: self.changed(a, random) if is_float(a) and not name.startswith("p") else a
            for name, a in self.inputs.items()
        }
        return ingot.compile(path, opt_level=0, threads=1).inference(inputs)

    @staticmethod
    def changed(array: Any, random: np.random.Generator) -> Any:
        eps = eps_of(array.dtype)
        factor = random.choice([1 - eps, 1, 1 + 2 * eps], array.shape)
        return np.asarray(array.astype(np.float64) * factor).astype(array.dtype)


def tensors_of(graph: ingot.Graph, names: list[str], inputs: Outputs) -> Outputs:
    """Those that exist: some names are of sequences, and some nodes are gone."""
    try:
        return graph.dump_tensors(names, inputs)
    except ingot.Error:
        pass
    result: Outputs = {}
    for name in names:
        try:
            result |= graph.dump_tensors([name], inputs)
        except (ingot.Error, TypeError):
            continue
    return result


def eps_of(dtype: Any) -> float:
    if dtype == ml_dtypes.bfloat16:
        return float(2.0 ** -MANTISSA[T.BFLOAT16])
    return float(np.finfo(dtype).eps) / 2


def text(x: Any) -> str:
    return x.decode() if isinstance(x, bytes) else str(x)


def first_difference(found: Any, expected: Any, wrong: Any = None) -> str:
    """The first element that differs, and how many do."""
    if wrong is None:
        if found.dtype == object:
            wrong = found != expected
        else:
            size = found.dtype.itemsize
            wrong = (found.ravel().view(f"V{size}") != expected.ravel().view(f"V{size}")).reshape(found.shape)
    place = tuple(int(i) for i in np.argwhere(wrong)[0]) if np.ndim(wrong) else ()
    return f"{int(np.sum(wrong))} of {found.size} differ; at {place}: {found[place]} instead of {expected[place]}"


def check(case: Case, folder: Path, library: bool = False, peers: bool = True) -> Comparison:
    return Checker(case, folder, library, peers).check()
