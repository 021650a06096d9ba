"""Draws docs/architecture.svg: the folders of src/ in their order, and how many include lines go from each to each.

Folders are boxes down a staircase. The row of a folder has a dot in the column of every folder it includes, with the
number of include lines; a dot above the staircase would break the order (scripts/include_check.py).
"""

from collections import Counter

from include_check import LAYERS, ORDER, ROOT, includes

OUTPUT = ROOT / "docs" / "architecture.svg"
COLORS = {"in every model.so": "#2f6f9f", "the compiler": "#4d7c3a", "what users call": "#a4622a"}
STEP_X, STEP_Y = 46, 36
BOX_WIDTH, BOX_HEIGHT = 84, 26
LEFT, TOP = 30, 36
BOX_LEFT = 22  # of a column's middle
WIDTH = LEFT + len(ORDER) * STEP_X + BOX_WIDTH - BOX_LEFT - 10
HEIGHT = TOP + len(ORDER) * STEP_Y


def count_edges() -> Counter[tuple[str, str]]:
    edges: Counter[tuple[str, str]] = Counter()
    for i in includes():
        if i.target in ORDER and i.target != i.source:
            edges[i.source, i.target] += 1
    return edges


def x(folder: str) -> int:
    return LEFT + ORDER.index(folder) * STEP_X


def y(folder: str) -> int:
    return TOP + ORDER.index(folder) * STEP_Y


def draw_group(number: int, title: str, folders: list[str]) -> str:
    """The band of rows that a group has, and its line of the legend."""
    color, legend = COLORS[title], TOP + number * 24
    return (
        f'<rect y="{y(folders[0]) - STEP_Y // 2}" width="{WIDTH}" height="{len(folders) * STEP_Y}" fill="{color}"'
        ' fill-opacity="0.08"/>'
        f'<rect x="{WIDTH - 330}" y="{legend - 11}" width="14" height="14" rx="3" fill="{color}"/>'
        f'<text x="{WIDTH - 308}" y="{legend + 1}">{title}</text>'
    )


def draw_lines(edges: Counter[tuple[str, str]]) -> str:
    """From a folder's box along its row, and from the folders it includes down to there."""
    lines = []
    for folder in ORDER:
        if used := [target for source, target in edges if source == folder]:
            left = min(x(t) for t in used)
            lines.append(f'<line x1="{left}" y1="{y(folder)}" x2="{x(folder)}" y2="{y(folder)}"/>')
        if users := [source for source, target in edges if target == folder]:
            low = max(y(s) for s in users)
            lines.append(f'<line x1="{x(folder)}" y1="{y(folder)}" x2="{x(folder)}" y2="{low}"/>')
    return "\n".join(['<g stroke="#bbb">', *lines, "</g>"])


def draw_edge(source: str, target: str, count: int) -> str:
    return (
        f"<g><title>{source}/ includes {target}/: {count} lines</title>"
        f'<circle cx="{x(target)}" cy="{y(source)}" r="{min(8 + count**0.5, 15):.1f}" fill="#fff" stroke="#777"/>'
        f'<text x="{x(target)}" y="{y(source) + 4}" text-anchor="middle" font-size="11">{count}</text></g>'
    )


def draw_box(folder: str, color: str) -> str:
    left, top = x(folder) - BOX_LEFT, y(folder) - BOX_HEIGHT // 2
    return (
        f'<rect x="{left}" y="{top}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="4" fill="{color}"/>'
        f'<text x="{left + BOX_WIDTH // 2}" y="{y(folder) + 4}" text-anchor="middle" fill="#fff">{folder}</text>'
    )


def draw() -> str:
    edges = count_edges()
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        ' font-family="Helvetica, Arial, DejaVu Sans, sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        *(draw_group(number, title, folders) for number, (title, folders) in enumerate(LAYERS.items())),
        f'<text x="{WIDTH - 330}" y="{TOP + 78}" fill="#555">A dot: the row includes the column, this often.</text>',
        draw_lines(edges),
        *(draw_edge(*edge, count) for edge, count in sorted(edges.items())),
        *(draw_box(folder, COLORS[title]) for title, folders in LAYERS.items() for folder in folders),
        "</svg>\n",
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    OUTPUT.write_text(draw())
    print(f"wrote {OUTPUT.relative_to(ROOT)}")
