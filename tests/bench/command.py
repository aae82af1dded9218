"""`serpens bench`: runs the benches of this folder and prints what they measured."""

import importlib
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from backend.telemetry import configure_logging
from tests.bench.report import Metric, report

FOLDER = Path(__file__).resolve().parent
NOT_BENCHES = {"__init__", "command", "report"}


def bench_names() -> list[str]:
    """Every module of this folder that is a bench."""
    return sorted(
        path.stem for path in FOLDER.glob("*.py") if path.stem not in NOT_BENCHES and not path.stem.startswith("_")
    )


def bench(
    name: Annotated[str, typer.Argument(help="A bench, or `all`")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a bench instead of a table")] = False,
    out: Annotated[Path | None, typer.Option(help="Also write <bench>.json into this folder")] = None,
) -> None:
    """Measure, beside a peer where there is one. `all` runs every bench and goes on after one that fails."""
    configure_logging(as_json=False)  # to stderr: standard output is the measurement's
    names = bench_names()
    if name != "all" and name not in names:
        typer.echo(f"there is no bench {name!r}; there are: {', '.join(names) or 'none'}, all", err=True)
        raise typer.Exit(2)
    failed = []
    for chosen in names if name == "all" else [name]:
        result = _measure(chosen) if name != "all" else _measure_or_tell(chosen)
        if result is None:
            failed.append(chosen)
            continue
        typer.echo(json.dumps(result) if as_json else _table(result))
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            (out / f"{chosen}.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if failed:
        typer.echo(f"failed: {', '.join(failed)}", err=True)
        raise typer.Exit(1)


def _measure(name: str) -> dict[str, Any]:
    metrics: dict[str, Metric] = importlib.import_module(f"tests.bench.{name}").run()
    return report(name, metrics)


def _measure_or_tell(name: str) -> dict[str, Any] | None:
    try:
        return _measure(name)
    except Exception:  # noqa: BLE001  (one bench that fails does not take the others' figures away; told, and exit 1)
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        return None


def _table(result: dict[str, Any]) -> str:
    lines = [
        f"{result['bench']} at {result['revision']} on {result['machine']['cpu']}, {result['machine']['cores']} cores"
    ]
    for name, metric in result["metrics"].items():
        spread = metric["spread"]
        line = f"  {name}: {metric['value']:.4g} {metric['unit']}"
        if spread is not None:
            line += f" ({spread['kind']} {spread['low']:.4g}..{spread['high']:.4g}, {metric['runs']} runs)"
        if metric["target"] is not None:
            line += f", target {metric['target']:.4g}"
        if metric["ratio"] is not None:
            line += f", {metric['ratio']:.2f}x {metric['peer']} ({metric['peer_value']:.4g})"
        lines.append(line)
    return "\n".join(lines)
