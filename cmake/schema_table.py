"""schema_table.py OUT: since when there is each operator, and which element types its operands may have now, from the
onnx package."""

import re
import sys
from pathlib import Path

import onnx
from onnx import TensorProto
from onnx.defs import OpSchema

NAMES = {name.lower(): number for name, number in TensorProto.DataType.items()}


def mask(types: set[str]) -> int:
    """A bit per element type, whether it stands in a tensor, a sequence or an optional."""
    bits = 0
    for text in types:
        found = re.search(r"tensor\((\w+)\)", text)
        if found and found[1] in NAMES:
            bits |= 1 << NAMES[found[1]]
    return bits


since: dict[tuple[str, str], int] = {}
for old in onnx.defs.get_all_schemas_with_history():
    key = (old.domain, old.name)
    since[key] = min(old.since_version, since.get(key, old.since_version))

rows = []
for schema in onnx.defs.get_all_schemas():
    operands = []
    for formal in schema.inputs:
        variadic = formal.option == OpSchema.FormalParameterOption.Variadic
        # Operands that share a type variable have one type; a variadic operand may be of several.
        variable = formal.type_str if not variadic or formal.is_homogeneous else ""
        variable = "" if "(" in variable else variable
        operands.append(f'{{{mask(set(formal.types))}u, "{variable}", {str(variadic).lower()}}}')
    first = since[schema.domain, schema.name]
    rows.append(f'    {{"{schema.domain}", "{schema.name}", {{{", ".join(operands)}}}, {first}}},\n')

table = "".join(rows)
Path(sys.argv[1]).write_text(
    f"""#include "loader/schema.h"

namespace ingot {{

const std::vector<OpSchema>& onnx_schemas() {{
  static const std::vector<OpSchema> table = {{
{table}  }};
  return table;
}}

}}  // namespace ingot
"""
)
