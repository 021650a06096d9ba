"""Products with weights in groups as com.microsoft MatMulNBits, and rows of such tables as GatherBlockQuantized: what
onnxruntime has for them beside DequantizeLinear.

    MatMulNBits: B [N, groups, block * bits / 8] of unsigned integers, the first in the lowest bits; scales [N, groups];
    zero points [N, groups * bits / 8], padded to bytes, or 2^(bits - 1)
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

DOMAIN = "com.microsoft"
LEAST_BLOCK = 16


def to_microsoft_operators(path: Path, *, external_data: bool) -> int:
    """Rewrites the file; gives the number of operators."""
    import onnx

    model = onnx.load(path)
    made = _Rewriter(model.graph).run()
    if made:
        model.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 1))
        large = external_data or model.ByteSize() > 1_900_000_000
        location = {"location": path.name + ".data", "size_threshold": 1024} if large else {}
        onnx.save(model, path, save_as_external_data=large, **location)
    return made


class _Rewriter:
    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._uses = Counter(name for node in graph.node for name in node.input)
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        self._wideners = {n.output[0]: n for n in graph.node if n.op_type == "DequantizeLinear" and self._fits(n)}

    def run(self) -> int:
        nodes, made = [], 0
        for node in self._graph.node:
            new = self._rewritten(node)
            made += new is not None
            nodes.append(node if new is None else new)
        used = {name for node in nodes if node.output[0] not in self._wideners for name in node.input}
        nodes = [node for node in nodes if node.output[0] not in self._wideners or node.output[0] in used]
        used = {name for node in nodes for name in node.input} | {out.name for out in self._graph.output}
        kept = [tensor for tensor in self._constants.values() if tensor.name in used]
        for field, items in (("node", nodes), ("initializer", kept)):
            self._graph.ClearField(field)
            getattr(self._graph, field).extend(items)
        return made

    def _fits(self, node: Any) -> bool:
        import onnx

        kinds = (onnx.TensorProto.INT4, onnx.TensorProto.UINT4, onnx.TensorProto.INT8, onnx.TensorProto.UINT8)
        if any(name not in self._constants for name in node.input):
            return False
        if any(self._uses[name] != 1 for name in (*node.input, *node.output)):  # another reader wants them as they are
            return False
        block, q = _attributes(node).get("block_size", 0), self._constants[node.input[0]]
        return block >= LEAST_BLOCK and block & (block - 1) == 0 and q.data_type in kinds and len(q.dims) == 2

    def _rewritten(self, node: Any) -> Any:
        if node.op_type == "MatMul" and node.input[1] in self._wideners:
            widener = self._wideners[node.input[1]]
            if _attributes(widener).get("axis", 1) in (0, -2):
                return self._product(node, widener)
        if node.op_type == "Gather" and node.input[0] in self._wideners and _attributes(node).get("axis", 0) == 0:
            widener = self._wideners[node.input[0]]
            if _attributes(widener).get("axis", 1) in (1, -1) and _bits(self._constants[widener.input[0]]) == 4:
                return self._rows(node, widener)
        return None

    def _product(self, node: Any, widener: Any) -> Any:
        import onnx

        q, scale = self._constants[widener.input[0]], self._constants[widener.input[1]]
        bits, block = _bits(q), _attributes(widener)["block_size"]
        k, n = q.dims
        groups = scale.dims[0]
        half = 1 << (bits - 1)
        filled = np.full((n, groups * block), half, np.uint8)
        filled[:, :k] = _unsigned(q).T
        inputs = [node.input[0], widener.input[0], widener.input[1]]
        self._set(inputs[1], _packed(filled, bits).reshape(n, groups, block * bits // 8))
        self._set(inputs[2], np.ascontiguousarray(onnx.numpy_helper.to_array(scale).T))
        if len(widener.input) > 2:
            inputs.append(widener.input[2])
            zeros = _unsigned(self._constants[widener.input[2]]).T
            odd = groups % 2 if bits == 4 else 0
            self._set(inputs[3], _packed(np.pad(zeros, ((0, 0), (0, odd))), bits))
        sizes = {"K": k, "N": n, "bits": bits, "block_size": block}
        return onnx.helper.make_node("MatMulNBits", inputs, node.output, node.name, domain=DOMAIN, **sizes)

    def _rows(self, node: Any, widener: Any) -> Any:
        import onnx

        inputs = [widener.input[0], node.input[1], *widener.input[1:]]
        how = {"gather_axis": 0, "quantize_axis": 1, "block_size": _attributes(widener)["block_size"]}
        return onnx.helper.make_node("GatherBlockQuantized", inputs, node.output, node.name, domain=DOMAIN, **how)

    def _set(self, name: str, value: Any) -> None:
        import onnx

        self._constants[name] = onnx.numpy_helper.from_array(value, name)


def _attributes(node: Any) -> dict[str, Any]:
    import onnx

    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


def _bits(tensor: Any) -> int:
    import onnx

    return 4 if tensor.data_type in (onnx.TensorProto.INT4, onnx.TensorProto.UINT4) else 8


def _unsigned(tensor: Any) -> Any:
    """One to a byte; of signed numbers the zero moves to the middle."""
    import onnx

    value = onnx.numpy_helper.to_array(tensor).astype(np.int16)
    signed = tensor.data_type in (onnx.TensorProto.INT4, onnx.TensorProto.INT8)
    return (value + ((1 << (_bits(tensor) - 1)) if signed else 0)).astype(np.uint8)


def _packed(rows: Any, bits: int) -> Any:
    return np.ascontiguousarray(rows) if bits == 8 else rows[:, ::2] | (rows[:, 1::2] << 4)
