"""The page of `make bench-models`: one HTML file with the plots inside; nothing is loaded from elsewhere."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from models_summary import PEERS, TIE, against, describe_step, first_result_s, roof_share, steady_ms
from plots import ranked

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1e293b; background: #f8fafc; max-width: 1100px; margin: 2em auto;
  padding: 0 1em; }
h1, h2 { line-height: 1.2; } svg { max-width: 100%; height: auto; border: 1px solid #e2e8f0; border-radius: 6px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: .6em 0 1.4em; background: #fff; font-size: 13px; }
th, td { padding: .25em .6em; border: 1px solid #e2e8f0; text-align: left; vertical-align: top; }
th { background: #f1f5f9; } td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.bad { color: #b91c1c; } .good { color: #047857; }
"""


def cell(value: object) -> str:
    """Numbers right, ratios coloured, everything escaped."""
    shown = html.escape(str(value))
    if not shown or not (shown[0].isdigit() or shown in ("nan", "-")):
        return f"<td>{shown}</td>"
    if shown.endswith("x"):
        ratio = float(shown[:-1])
        colour = "good" if ratio > 1 + TIE else "bad" if ratio < 1 / (1 + TIE) else ""
        return f'<td class="n {colour}">{shown}</td>'
    return f'<td class="n">{shown}</td>'


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    head = "".join(f"<th>{html.escape(c)}</th>" for c in columns)
    body = "\n".join("<tr>" + "".join(cell(v) for v in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{head}</tr>\n{body}\n</table></div>'


def figure(value: float | None, form: str = "{:.2f}") -> str:
    return "-" if value is None else form.format(value)


def overview(summary: Mapping[str, Any]) -> str:
    rows = []
    for row in summary["steady"]:
        for peer in ("best peer", *PEERS):
            c = row[peer]
            below = [f"{100 * c[k] / max(c['models'], 1):.0f} %" for k in ("below_0.95", "below_0.8")]
            rows.append(
                (
                    row["threads"],
                    row["form"],
                    peer,
                    c["models"],
                    f"{c['geometric_mean']:.2f}x",
                    c["wins"],
                    c["ties"],
                    c["losses"],
                    *below,
                    f"{100 * row['roof']['geometric_mean']:.0f} %",
                )
            )
    columns = ("threads", "sizes", "against", "models", "geometric mean", "wins", "ties", "losses")
    return table((*columns, "below 0.95x", "below 0.8x", "Ingot's share of the roof"), rows)


def starts(summary: Mapping[str, Any]) -> str:
    rows = [
        (part, f"{s['geometric_mean']:.2f}", f"{s['largest']:.1f}", s["above_1.5"])
        for part, s in summary["starts"].items()
    ]
    return table(("first result", "time over onnxruntime's, geometric mean", "largest", "models above 1.5"), rows)


def every_model(results: list[dict[str, Any]], threads: list[int]) -> str:
    columns = ["model", "package", "inputs", "difference"]
    for count in threads:
        columns += [f"{count}T Ingot ms", f"{count}T onnxruntime", f"{count}T OpenVINO", f"{count}T ratio"]
        columns += [f"{count}T ratio, fixed sizes"]
    columns += ["of roof", "cold s", "warm s", "onnxruntime s", "OpenVINO s", "not specialised"]
    rows = []
    for r in results:
        d = r["difference"].get("ingot free")
        row: list[object] = [r["model"], r["package"], ", ".join(f"{n} {s}" for n, s in r["inputs"].items())[:120]]
        row.append(f"{d:.1e}" if isinstance(d, float) else d or "-")
        for count in threads:
            times = steady_ms(r, count, "free")
            row += [figure(times.get(e), "{:.3f}") for e in ("ingot", *PEERS)]
            row.append(figure(against(r, count, "free", PEERS), "{:.2f}x"))
            row.append(figure(against(r, count, "fixed", PEERS), "{:.2f}x") if "fixed" in r["forms"] else "-")
        share = roof_share(r, threads[0], "free")
        row.append(figure(100 * share, "{:.0f} %") if share is not None else "-")
        row += [figure(first_result_s(r, part, "ingot"), "{:.3f}") for part in ("cold", "warm")]
        row += [figure(first_result_s(r, "cold", peer), "{:.3f}") for peer in PEERS]
        plain = r.get("profile", {}).get("not_specialised_share")
        row.append(figure(100 * plain, "{:.0f} %") if plain is not None else "-")
        rows.append(row)
    return table(columns, rows)


def write_page(path: Path, head: Mapping[str, Any], summary: Mapping[str, Any], results: list[dict[str, Any]]) -> None:
    threads = head["settings"]["threads"]
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8"><title>Ingot on real models</title>',
        f"<style>{STYLE}</style></head><body>",
        f"<h1>Ingot on {summary['models']} real models</h1>",
        f"<p>{html.escape(head['cpu'])}, target {html.escape(head['target'])}. onnxruntime {head['onnxruntime']}, "
        f"OpenVINO {head['openvino']}. Models out of PyPI wheels. One thread: minima of CPU time; more: of wall "
        "time; engines take turns. A ratio is the peer's time over Ingot's: above 1 Ingot is faster, within 5 % is a "
        f"tie. The roof is the measured peak of {html.escape(head['fma_unit'])}, for 8-bit models that of products of "
        "bytes.</p>",
        "<h2>Steady state</h2>",
        overview(summary),
    ]
    for row in summary["steady"]:
        ratios = row["best peer"]["ratios"]
        if ratios:
            title = f"{row['threads']} thread(s), {row['form']} sizes: times as fast as the best peer"
            parts.append(ranked(title, ratios, "peer's time over Ingot's", TIE))
    for count, ratio in summary["free_over_fixed"].items():
        parts.append(f"<p>With free sizes Ingot takes {ratio:.2f}x the time of fixed ones, {count} thread(s).</p>")
    parts += ["<h2>From a fresh process to the first result</h2>", starts(summary)]
    for part, s in summary["starts"].items():
        if s["ratios"]:
            faster = {name: 1 / ratio for name, ratio in s["ratios"].items()}
            parts.append(ranked(f"first result, {part}: times as fast as onnxruntime", faster, "times as fast", TIE))
    worst = [
        (row["model"], f"{row['ratio']:.2f}x", *(figure(row["ms"].get(e), "{:.3f}") for e in ("ingot", *PEERS)),
         describe_step(row["step"]))
        for row in summary["worst"]
    ]  # fmt: skip
    columns = ("model", "ratio", "Ingot ms", "onnxruntime", "OpenVINO", "the step that costs most")
    parts += ["<h2>The ten slowest beside the best peer, as they come</h2>", table(columns, worst)]
    refused = [(row["model"], row["who"], row["error"]) for row in summary["refused"]]
    parts += ["<h2>What was refused, or did not end</h2>", table(("model", "engine", "error"), refused)]
    different = [
        (row["model"], row["who"], row["difference"], f"{row['tolerance']:.0e}") for row in summary["different"]
    ]
    parts += ["<h2>Results unlike onnxruntime's</h2>"]
    parts.append(table(("model", "engine", "largest difference over the output's scale", "tolerance"), different))
    parts += ["<h2>Every model</h2>", every_model(results, threads), "</body></html>", ""]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(parts))
