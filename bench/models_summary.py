"""What the results of bench_models.py come to: ratios, counts, the worst, what is refused, what is wrong."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.console import Console

PEERS = ("onnxruntime", "openvino")
TIE = 0.05
WORST = 10


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def steady_ms(result: Mapping[str, Any], threads: int, form: str) -> dict[str, float]:
    """By engine; a model without free dims is the same in both forms."""
    form = form if form in result["forms"] else "free"
    engines = result["steady"].get(str(threads), {}).get("engines", {})
    return {name.split()[0]: f["deciding_ms"] for name, f in engines.items() if name.endswith(f" {form}")}


def first_result_s(result: Mapping[str, Any], part: str, engine: str, form: str = "free") -> float | None:
    found: float | None = result.get(part, {}).get(f"{engine} {form}", {}).get("first_result_s")
    return found


def against(result: Mapping[str, Any], threads: int, form: str, peers: tuple[str, ...]) -> float | None:
    """How many times as fast as the best of these peers Ingot is."""
    times = steady_ms(result, threads, form)
    others = [times[p] for p in peers if p in times]
    return min(others) / times["ingot"] if "ingot" in times and others else None


def counted(ratios: Mapping[str, float]) -> dict[str, Any]:
    """win, tie and loss: the same width on both sides of 1."""
    values = list(ratios.values())
    wins, losses = sum(v > 1 + TIE for v in values), sum(v < 1 / (1 + TIE) for v in values)
    return {
        "models": len(values),
        "geometric_mean": geometric_mean(values),
        "wins": wins,
        "ties": len(values) - wins - losses,
        "losses": losses,
        "below_0.95": sum(v < 0.95 for v in values),
        "below_0.8": sum(v < 0.8 for v in values),
        "ratios": dict(ratios),
    }


def known(pairs: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    return {name: value for name, value in pairs if value is not None}


def roof_share(result: Mapping[str, Any], threads: int, form: str) -> float | None:
    """Of the FMA peak, or of that of bytes for a model with integer products, measured in the same moment."""
    gmac = result.get("work", {}).get("gmac")
    ms = steady_ms(result, threads, form).get("ingot")
    steady = result["steady"].get(str(threads), {})
    peak = steady.get("byte_peak_gmacs" if result.get("work", {}).get("type") == "int8" else "fma_peak_gmacs")
    return gmac / (ms * 1e-3) / peak if gmac and ms and peak else None


def start_ratio(result: Mapping[str, Any], part: str, form: str) -> float | None:
    """Ingot's time to the first result over onnxruntime's."""
    ours, theirs = first_result_s(result, part, "ingot", form), first_result_s(result, "cold", "onnxruntime", form)
    return ours / theirs if ours and theirs else None


def summarise(results: list[dict[str, Any]], threads: list[int]) -> dict[str, Any]:
    steady = []
    for count in threads:
        for form in ("free", "fixed"):
            row: dict[str, Any] = {"threads": count, "form": form}
            for key, peers in (("best peer", PEERS), ("onnxruntime", ("onnxruntime",)), ("openvino", ("openvino",))):
                row[key] = counted(known((r["model"], against(r, count, form, peers)) for r in results))
            shares = known((r["model"], roof_share(r, count, form)) for r in results)
            row["roof"] = {"geometric_mean": geometric_mean(shares.values()), "shares": shares}
            steady.append(row)
    dynamic = [r for r in results if "fixed" in r["forms"]]
    free_over_fixed = {}
    for count in threads:
        pairs = [(steady_ms(r, count, "free").get("ingot"), steady_ms(r, count, "fixed").get("ingot")) for r in dynamic]
        free_over_fixed[str(count)] = geometric_mean(a / b for a, b in pairs if a and b)
    starts = {}
    for part in ("cold", "warm"):
        ratios = known((r["model"], start_ratio(r, part, "free")) for r in results)
        starts[part] = {
            "geometric_mean": geometric_mean(ratios.values()),
            "largest": max(ratios.values(), default=math.nan),
            "above_1.5": sum(v > 1.5 for v in ratios.values()),
            "ratios": ratios,
        }
    return {
        "models": len(results),
        "steady": steady,
        "free_over_fixed": free_over_fixed,
        "starts": starts,
        "worst": worst(results, threads[0]),
        "refused": [
            {"model": r["model"], "who": who, "error": error} for r in results for who, error in r["errors"].items()
        ],
        "different": [
            {"model": r["model"], "who": who, "difference": d, "tolerance": r["tolerance"]}
            for r in results
            for who, d in r["difference"].items()
            if isinstance(d, str) or not d <= r["tolerance"]
        ],
    }


def worst(results: list[dict[str, Any]], threads: int) -> list[dict[str, Any]]:
    """The models that lose most as they come, with the step that takes most of their time."""
    ratios = known((r["model"], against(r, threads, "free", PEERS)) for r in results)
    by_name = {r["model"]: r for r in results}
    rows = []
    for name in sorted(ratios, key=lambda n: ratios[n])[:WORST]:
        times = steady_ms(by_name[name], threads, "free")
        steps = by_name[name].get("profile", {}).get("worst", [])
        rows.append({"model": name, "ratio": ratios[name], "ms": times, "step": steps[0] if steps else None})
    return rows


def describe_step(step: Mapping[str, Any] | None) -> str:
    if not step:
        return "not known"
    plain = "" if step["specialised"] else ", not specialised"
    return f"{100 * step['share']:.0f} % {step['op']} {step['node']} {step['output']} ({step['kernel']}{plain})"


def show(summary: Mapping[str, Any], console: Console) -> None:
    if any(row["best peer"]["models"] for row in summary["steady"]):
        show_steady(summary, console)
    for part, s in summary["starts"].items():
        if s["ratios"]:
            console.print(
                f"first result, {part}: {s['geometric_mean']:.2f}x onnxruntime's time (geometric mean), "
                f"at most {s['largest']:.1f}x, {s['above_1.5']} models above 1.5x"
            )
    for row in summary["refused"]:
        error = " ".join(row["error"].split())[:300]
        console.print(f"[red]{row['model']}, {row['who']}[/]: {escape(error)}")
    for row in summary["different"]:
        found = row["difference"] if isinstance(row["difference"], str) else f"{row['difference']:.1e} of the scale"
        console.print(f"[red]{row['model']}, {row['who']}[/] differs from onnxruntime: {escape(found)}")


def show_steady(summary: Mapping[str, Any], console: Console) -> None:
    table = Table(title=f"{summary['models']} real models, steady state", title_justify="left")
    for column in (
        "threads",
        "sizes",
        "against",
        "models",
        "geo. mean",
        "win/tie/loss",
        "< 0.95x",
        "< 0.8x",
        "of roof",
    ):
        table.add_column(column, justify="left" if column in ("sizes", "against") else "right")
    for row in summary["steady"]:
        for i, peer in enumerate(("best peer", *PEERS)):
            c = row[peer]
            first = [str(row["threads"]), row["form"]] if i == 0 else ["", ""]
            share = f"{100 * row['roof']['geometric_mean']:.0f} %" if i == 0 else ""
            counts = f"{c['wins']}/{c['ties']}/{c['losses']}"
            below = [f"{100 * c[k] / max(c['models'], 1):.0f} %" for k in ("below_0.95", "below_0.8")]
            table.add_row(*first, peer, str(c["models"]), f"{c['geometric_mean']:.2f}x", counts, *below, share)
        table.add_section()
    console.print(table)
    for count, ratio in summary["free_over_fixed"].items():
        console.print(f"Ingot with free sizes takes {ratio:.2f}x the time of fixed ones, {count} thread(s)")
    table = Table(title="slowest beside the best peer, as they come", title_justify="left")
    for column in ("model", "ratio", "ms", "the step that costs most"):
        table.add_column(column)
    for row in summary["worst"]:
        times = ", ".join(f"{name} {ms:.3g}" for name, ms in row["ms"].items())
        table.add_row(row["model"], f"{row['ratio']:.2f}x", times, escape(describe_step(row["step"])))
    console.print(table)
