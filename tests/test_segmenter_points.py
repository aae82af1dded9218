"""Region growing and the random walk."""

import time

import numpy as np
import pytest

from annotation.segmenters.points import grow_from_points
from backend.domain.segmenter import PointsPrompt, UnusablePrompt
from tests.factories.segmenter import disc, disc_picture, iou


def test_a_point_on_a_disc_gives_the_disc() -> None:
    picture = disc_picture(300, 512, x=200, y=120, radius=30)
    mask = grow_from_points(picture.pixels, PointsPrompt(((200, 120),), (1,)))
    assert iou(mask, disc(300, 512, x=200, y=120, radius=30)) > 0.95


def test_a_point_on_the_ground_leaves_the_disc_out() -> None:
    picture = disc_picture(300, 512, x=200, y=120, radius=30)
    mask = grow_from_points(picture.pixels, PointsPrompt(((400, 200),), (1,)))
    assert iou(mask, ~disc(300, 512, x=200, y=120, radius=30)) > 0.97


def test_two_points_give_two_regions() -> None:
    pixels = np.full((100, 200), 30, dtype=np.uint8)
    pixels[30:60, 30:60] = 200
    pixels[30:60, 130:160] = 120
    mask = grow_from_points(pixels, PointsPrompt(((45, 45), (145, 45)), (1, 1)))
    assert mask.sum() == pytest.approx(1800, abs=60)


def test_an_outside_point_parts_two_discs_that_touch() -> None:
    left, right = (disc(200, 300, x=x, y=100, radius=50) for x in (105, 195))
    pixels = np.where(left | right, 200, 40).astype(np.uint8)
    mask = grow_from_points(pixels, PointsPrompt(((105, 100), (195, 100)), (1, 0)))
    assert iou(mask, left) > 0.9
    assert not mask[100, 195]


def test_an_outside_point_beyond_the_region_changes_nothing() -> None:
    picture = disc_picture(300, 512, x=200, y=120, radius=30)
    alone = grow_from_points(picture.pixels, PointsPrompt(((200, 120),), (1,)))
    assert np.array_equal(alone, grow_from_points(picture.pixels, PointsPrompt(((200, 120), (400, 200)), (1, 0))))


def test_colours_of_one_brightness_are_told_apart() -> None:
    pixels = np.zeros((100, 100, 3), dtype=np.uint8)
    pixels[..., 0] = 150
    pixels[30:70, 30:70] = (0, 0, 150)
    mask = grow_from_points(pixels, PointsPrompt(((50, 50),), (1,)))
    assert mask.sum() == pytest.approx(1600, abs=160)


def test_points_too_close_for_the_walk_are_unusable() -> None:
    pixels = np.full((2000, 2000), 100, dtype=np.uint8)
    with pytest.raises(UnusablePrompt, match="told apart"):
        grow_from_points(pixels, PointsPrompt(((1000.5, 1000.5), (1002.5, 1000.5)), (1, 0)))


def test_a_large_noisy_film_with_both_kinds_of_points_takes_seconds_of_the_processor_at_most() -> None:
    pixels = np.random.default_rng(1).normal(120, 6, (2500, 2000)).clip(0, 255).astype(np.uint8)
    started = time.process_time()
    grow_from_points(pixels, PointsPrompt(((500, 500), (1500, 2000), (1000, 1250)), (1, 1, 0)))
    assert time.process_time() - started < 15
