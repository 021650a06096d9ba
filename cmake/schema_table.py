"""schema_table.py OUT: every version of every operator of the onnx package, one line each: see loader/schema.cpp, which
reads them."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import onnx
from onnx import AttributeProto, TensorProto
from onnx.defs import OpSchema

NAMES = {name.lower(): number for name, number in TensorProto.DataType.items()}
MOST = 2**31 - 1  # stands for "any number"


def mask(types: set[str]) -> int:
    """A bit per element type, whether it stands in a tensor, a sequence or an optional."""
    bits = 0
    for text in types:
        found = re.search(r"tensor\((\w+)\)", text)
        if found and found[1] in NAMES:
            bits |= 1 << NAMES[found[1]]
    return bits


def formals(parameters: Sequence[OpSchema.FormalParameter]) -> str:
    out = []
    for formal in parameters:
        variadic = formal.option == OpSchema.FormalParameterOption.Variadic
        # Operands that share a type variable have one type; a variadic operand may be of several.
        variable = formal.type_str if not variadic or formal.is_homogeneous else ""
        variable = "" if "(" in variable else variable
        out.append(f"{mask(set(formal.types))}:{variable}:{int(variadic)}")
    return ",".join(out)


def attributes(schema: OpSchema) -> str:
    """name=default for integers and strings, name for others."""
    out = []
    for name, attribute in sorted(schema.attributes.items()):
        default = attribute.default_value
        value = ""
        if default.type == AttributeProto.INT:
            value = f"={default.i}"
        elif default.type == AttributeProto.STRING:
            value = f"={default.s.decode()}"
        out.append(name + value)
    return ",".join(out)


def counts(schema: OpSchema) -> list[int]:
    return [min(n, MOST) for n in (schema.min_input, schema.max_input, schema.min_output, schema.max_output)]


lines = []
for schema in sorted(onnx.defs.get_all_schemas_with_history(), key=lambda s: (s.domain, s.name, s.since_version)):
    fields = [schema.domain, schema.name, schema.since_version, int(schema.deprecated), *counts(schema)]
    fields += [formals(schema.inputs), formals(schema.outputs), attributes(schema)]
    lines.append("\t".join(str(f) for f in fields))

table = "\n".join(lines)
Path(sys.argv[1]).write_text(
    f"""namespace ingot {{

extern const char* const kOnnxSchemas;
const char* const kOnnxSchemas = R"table({table}
)table";

}}  // namespace ingot
"""
)
