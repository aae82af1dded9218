"""What a rule that finds something by name is given and what it says."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from annotation.segmenters.litemedsam import BoxAnswer

BoolArray = NDArray[np.bool_]
OutlineBox = Callable[[tuple[float, float, float, float]], BoxAnswer]


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked for, or that it is not there.

    Attributes:
        mask: (rows, columns); all False where the target is not present.
        is_present: The rule's own acceptance test; its limits stand beside the rule.
        score: The refining model's estimate where it refined, else None.
        grid: (rows, columns) in which the refining model answered; None where the mask is the picture's own pixels.
    """

    mask: BoolArray
    is_present: bool
    score: float | None = None
    grid: tuple[int, int] | None = None


def absent(rows: int, columns: int) -> Finding:
    """The answer "not present"."""
    return Finding(mask=np.zeros((rows, columns), dtype=np.bool_), is_present=False)
