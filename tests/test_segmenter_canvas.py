"""The way onto a model's square and back."""

import numpy as np
import pytest

from annotation.segmenters.canvas import canvas_for, fitted
from tests.factories.segmenter import disc, iou


@pytest.mark.parametrize(("rows", "columns"), [(1080, 1240), (333, 517), (517, 333), (256, 256), (100, 60)])
def test_c48_a_disc_survives_the_way_there_and_back(rows: int, columns: int) -> None:
    truth = disc(rows, columns, x=columns * 0.55, y=rows * 0.45, radius=min(rows, columns) * 0.3)
    canvas = canvas_for(rows, columns, 256)
    # A stub of a model that gives back what it sees, as logits.
    logits = fitted(truth.astype(np.uint8) * 255, canvas)[..., 0] - 0.5
    restored = canvas.restored(logits) > 0
    assert restored.shape == (rows, columns)
    assert iou(restored, truth) > 0.98


def test_the_longer_side_fills_the_square_and_the_rest_is_zero() -> None:
    canvas = canvas_for(100, 200, 256)
    assert (canvas.held_rows, canvas.held_columns) == (128, 256)
    picture = np.full((100, 200), 90, dtype=np.uint8)
    picture[0, 0] = 250
    square = fitted(picture, canvas)
    assert square.shape == (256, 256, 3)
    assert square.max() == 1.0
    assert square[128:].max() == 0.0


def test_a_picture_of_one_grey_is_zero_throughout() -> None:
    assert fitted(np.full((40, 50), 77, dtype=np.uint8), canvas_for(40, 50, 256)).max() == 0.0


def test_a_box_is_one_pixel_wider_on_the_square_and_stays_on_the_picture() -> None:
    # 512 -> 256: edges 100 to 200 cover pixels 50 to 99 of the square.
    assert canvas_for(512, 512, 256).box((100, 100, 200, 200)) == (49, 49, 100, 100)
    assert canvas_for(256, 512, 256).box((0, 0, 512, 256)) == (0, 0, 255, 127)


def test_a_strip_keeps_a_pixel_across() -> None:
    canvas = canvas_for(2, 4000, 256)
    assert (canvas.held_rows, canvas.held_columns) == (1, 256)
    assert canvas.restored(np.ones((256, 256), dtype=np.float32)).shape == (2, 4000)
