"""dist_info.py pyproject.toml FOLDER: writes the metadata that an installed package has beside it, for the package
in the build folder: its name, its version and its entry points."""

import sys
import tomllib
from pathlib import Path


def main() -> None:
    project = tomllib.loads(Path(sys.argv[1]).read_text())["project"]
    folder = Path(sys.argv[2]) / f"{project['name']}-{project['version']}.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items()), ""]
    (folder / "entry_points.txt").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
