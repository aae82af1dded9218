"""How well and how fast the embedded segmenter works, on the four chest X-rays of the shared data (n = 4, one source).

Dice is of both lungs together. By name, the rules that find the lungs were made while looking at these four films: the
figure says that the parts fit together, not how good they are elsewhere. From the truth's box, the box is drawn around
each lung of the reference mask, which no user has: it says what LiteMedSAM makes of a good box.
"""

import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from skimage.measure import label, regionprops

from annotation.segmenters.embedded import EmbeddedSegmenter
from annotation.segmenters.litemedsam import LiteMedSam
from backend.domain.segmenter import BoxPrompt, CanonicalPicture, ConceptPrompt
from tests.bench.report import Metric, time_runs
from tests.factories.segmenter import dice
from tests.services import ROOT, SHARED_DATA

WARM_RUNS = 20
COLD_RUNS = 3
PROCESS_RUNS = 3


@dataclass(frozen=True, slots=True)
class Film:
    """A chest X-ray, its reference mask and the box of each lung in it, edges in pixels."""

    picture: CanonicalPicture
    truth: NDArray[np.bool_]
    boxes: tuple[BoxPrompt, ...]


def run() -> dict[str, Metric]:
    """Dice by name and by box, milliseconds of a prompt, memory of the process."""
    films = [_film(SHARED_DATA / "images2d" / "chest_xray", number) for number in (1, 2, 3, 4)]
    segmenter = EmbeddedSegmenter()
    segmenter.model.warm_up()
    metrics = {
        "dice_by_name": _mean(
            [dice(segmenter.segment(film.picture, ConceptPrompt("lungs")).mask, film.truth) for film in films],
            target=0.90,
        ),
        "dice_from_truth_box": _mean([_dice_by_box(segmenter, film) for film in films], target=0.95),
    }
    film = films[0]
    warm = time_runs(lambda: segmenter.segment(film.picture, film.boxes[0]), runs=WARM_RUNS, warm_up=2)
    metrics["prompt_warm_ms"] = Metric.of([1000 * s for s in warm], "ms", target=300)
    metrics["prompt_cold_ms"] = Metric.of([1000 * _cold_s(film) for film in films[:COLD_RUNS]], "ms", target=4000)
    metrics["process_start_to_mask_ms"] = Metric.of([_process_ms() for _ in range(PROCESS_RUNS)], "ms")
    metrics["peak_memory_mb"] = Metric(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "MB", runs=1)
    return metrics


def _film(folder: Path, number: int) -> Film:
    pixels = np.asarray(Image.open(folder / f"{number}.jpg"))
    truth = np.asarray(Image.open(folder / f"{number}-mask.png")) > 0
    boxes = []
    for lung in sorted(regionprops(label(truth)), key=lambda region: -region.area)[:2]:
        top, left, bottom, right = lung.bbox
        boxes.append(BoxPrompt((left, top, right, bottom)))
    return Film(CanonicalPicture(pixels, modality="DX"), truth, tuple(boxes))


def _mean(values: list[float], *, target: float) -> Metric:
    """The mean over the films and, as its spread, the worst and the best."""
    spread = Metric.of(values, "Dice").spread
    return Metric(float(np.mean(values)), "Dice", runs=len(values), spread=spread, target=target, lower_is_better=False)


def _dice_by_box(segmenter: EmbeddedSegmenter, film: Film) -> float:
    masks = [segmenter.segment(film.picture, box).mask for box in film.boxes]
    return dice(np.logical_or.reduce(masks), film.truth)


def _cold_s(film: Film) -> float:
    """Seconds of the first box on a picture that nobody prepared, in a running process."""
    segmenter = EmbeddedSegmenter(LiteMedSam())
    segmenter.model.load()
    started = time.perf_counter()
    segmenter.segment(film.picture, film.boxes[0])
    return time.perf_counter() - started


_FIRST_MASK = """
import numpy as np
from annotation.segmenters.embedded import EmbeddedSegmenter
from backend.domain.segmenter import BoxPrompt, CanonicalPicture
EmbeddedSegmenter().segment(CanonicalPicture(np.eye(512, dtype=np.uint8)), BoxPrompt((50, 50, 300, 300)))
"""


def _process_ms() -> float:
    """Milliseconds from nothing to a first mask: start of Python, import of torch, weights, encode, decode."""
    started = time.perf_counter()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run(
        [sys.executable, "-c", _FIRST_MASK],
        check=True,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return 1000 * (time.perf_counter() - started)
