"""What a bench measured, in the one form of DESIGN 10, and the few helpers that every bench shares.

A bench is a module `tests/bench/<name>.py` with `def run() -> dict[str, Metric]`.
"""

import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True, slots=True)
class Spread:
    """How far the runs lie apart, in the metric's unit: "iqr" is the middle half, "min-max" all of them."""

    kind: str
    low: float
    high: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> "Spread":
        """The quartiles of eight runs or more, else the least and the greatest."""
        if len(samples) < 8:
            return cls("min-max", min(samples), max(samples))
        low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
        return cls("iqr", low, high)


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure.

    Attributes:
        value: What stands for the runs; `Metric.of` takes their median.
        target: The budget in the same unit; None where DESIGN 10 gives it as a factor of the peer alone.
        lower_is_better: Which way `ratio` reads.
        peer: Name, version and flags of what it is compared with.
        peer_value: The peer's figure on the same input in the same run, in the same unit.
    """

    value: float
    unit: str
    runs: int
    spread: Spread | None = None
    target: float | None = None
    lower_is_better: bool = True
    peer: str | None = None
    peer_value: float | None = None

    @classmethod
    def of(cls, samples: Sequence[float], unit: str, *, peer_samples: Sequence[float] = (), **fields: Any) -> "Metric":
        """The median of the runs, and of the peer's; `fields` are `target`, `lower_is_better` and `peer`.

        Raises:
            ValueError: If there are no samples.
        """
        if not samples:
            raise ValueError("a metric needs at least one run, got none")
        peer_value = statistics.median(peer_samples) if peer_samples else None
        return cls(statistics.median(samples), unit, len(samples), Spread.of(samples), peer_value=peer_value, **fields)

    @property
    def ratio(self) -> float | None:
        """How many times better than the peer, above 1 whatever the unit; None without a peer or with a figure of 0."""
        if self.peer_value is None or self.value == 0 or self.peer_value == 0:
            return None
        return self.peer_value / self.value if self.lower_is_better else self.value / self.peer_value

    def as_json(self) -> dict[str, Any]:
        """The metric as `serpens bench` prints it."""
        spread = self.spread
        return {
            "value": self.value,
            "unit": self.unit,
            "runs": self.runs,
            "spread": None if spread is None else {"kind": spread.kind, "low": spread.low, "high": spread.high},
            "target": self.target,
            "peer": self.peer,
            "peer_value": self.peer_value,
            "ratio": self.ratio,
        }


def time_runs(action: Callable[[], object], *, runs: int, warm_up: int = 1) -> list[float]:
    """Seconds of each run on the wall clock, after runs that do not count."""
    for _ in range(warm_up):
        action()
    seconds = []
    for _ in range(runs):
        started = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - started)
    return seconds


def percentile(samples: Sequence[float], percent: float) -> float:
    """The sample below which `percent` of them lie, between two samples in proportion."""
    ordered = sorted(samples)
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def report(bench: str, metrics: dict[str, Metric]) -> dict[str, Any]:
    """The JSON object of one bench."""
    return {
        "bench": bench,
        "revision": revision(),
        "machine": machine(),
        "metrics": {name: metric.as_json() for name, metric in metrics.items()},
    }


def revision() -> str:
    """The commit that was measured, with "+" where files differ from it; "unknown" outside a git checkout."""
    found = _git("rev-parse", "--short=12", "HEAD")
    if found is None:
        return "unknown"
    return f"{found}+" if _git("status", "--porcelain") else found


def _git(*arguments: str) -> str | None:
    try:
        answer = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def machine() -> dict[str, Any]:
    """What it was measured on: enough to compare two figures, nothing that names the machine."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def _cpu_model() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
