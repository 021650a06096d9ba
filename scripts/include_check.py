"""The order of the folders in src/: a file includes only its own folder and those before it. src/README.md says why.

Lists every include line that breaks the order as file:line, and fails if there is one.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"

# Groups of folders, and the folders of each, in order.
LAYERS = {
    "in every model.so": ["base", "kernels", "graph", "ops", "ir", "planner", "runtime"],
    "the compiler": [
        "extractors",
        "loader",
        "passes",
        "expansions",
        "matcher",
        "fusions",
        "emitter",
        "writer",
        "codegen",
        "compiler",
        "quantizer",
    ],
    "what users call": ["cli", "python"],
}
ORDER = [folder for folders in LAYERS.values() for folder in folders]
INCLUDE = re.compile(r'\s*#\s*include\s+[<"]([^>"]+)')


class Include(NamedTuple):
    file: Path  # from src/
    line: int
    header: str  # from src/, or of another library

    @property
    def source(self) -> str:
        return self.file.parts[0]

    @property
    def target(self) -> str:
        return self.header.split("/")[0]


def includes() -> Iterator[Include]:
    for path in sorted(SRC.rglob("*")):
        if path.suffix in (".h", ".cpp", ".c", ".inc"):
            for number, text in enumerate(path.read_text().splitlines(), 1):
                if match := INCLUDE.match(text):
                    yield Include(path.relative_to(SRC), number, match[1])


def wrong(include: Include) -> str | None:
    if include.target in ("llvm", "lld", "clang"):
        return None if include.source == "codegen" else "LLVM's headers are for codegen/ alone"
    if include.target in ORDER and ORDER.index(include.target) > ORDER.index(include.source):
        return f"{include.source}/ comes before {include.target}/"
    return None


def readme_order() -> list[str]:
    """The folders in the first column of the table in src/README.md."""
    cells = re.findall(r"^\| (`[^|]+) \|", (SRC / "README.md").read_text(), re.MULTILINE)
    return [folder for cell in cells for folder in re.findall(r"`(\w+)/`", cell)]


def main() -> int:
    found = [
        f"src/{folder.name}: has no place in the order of folders (scripts/include_check.py)"
        for folder in sorted(SRC.iterdir())
        if folder.is_dir() and folder.name not in ORDER
    ]
    found += [f"src/{i.file}:{i.line}: {i.header}: {why}" for i in includes() if (why := wrong(i))]
    if readme_order() != ORDER:
        found.append("src/README.md: its table has the folders in another order than scripts/include_check.py")
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
