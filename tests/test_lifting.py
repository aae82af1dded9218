"""Lifting masks through chains of crops, against slow and clear code. DESIGN 3: a voxel is set if and only if its
centre falls in a set view pixel; exact where the view has a pixel for each of the frame's, else resampled.
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.crop import View, lift_to_frame, project_to_view, whole_frame

SIZE = st.integers(1, 24)


@st.composite
def chains(draw: st.DrawFn) -> View:
    """A view at the end of up to four crops, each at a size of its own, with edges at any thousandth of a pixel."""
    width, height = draw(SIZE), draw(SIZE)
    view = whole_frame("s", 0, width=width, height=height, window=None)
    for _ in range(draw(st.integers(0, 4))):
        x0, x1 = draw(edges(view.width))
        y0, y1 = draw(edges(view.height))
        view = view.zoomed((x0, y0, x1, y1), width=draw(SIZE), height=draw(SIZE))
    return view


@st.composite
def edges(draw: st.DrawFn, side: int) -> tuple[Fraction, Fraction]:
    low = draw(st.integers(0, side * 1000 - 1))
    high = draw(st.integers(low + 1, side * 1000))
    return Fraction(low, 1000), Fraction(high, 1000)


def some_mask(draw: st.DataObject, rows: int, columns: int) -> np.ndarray:
    bits = draw.draw(st.lists(st.booleans(), min_size=rows * columns, max_size=rows * columns))
    return np.array(bits, dtype=bool).reshape(rows, columns)


def slowly_lifted(mask: np.ndarray, view: View) -> np.ndarray:
    """The rule, pixel by pixel: where is the centre of this frame pixel in the view, and is that pixel set?"""
    x0, y0, x1, y1 = view.crop
    lifted = np.zeros((view.frame_height, view.frame_width), dtype=bool)
    for row in range(view.frame_height):
        for column in range(view.frame_width):
            x = (column + Fraction(1, 2) - x0) / (x1 - x0) * view.width
            y = (row + Fraction(1, 2) - y0) / (y1 - y0) * view.height
            if 0 <= x < view.width and 0 <= y < view.height:
                lifted[row, column] = mask[int(y), int(x)]
    return lifted


@given(chains(), st.data())
def test_lifting_follows_the_centre_rule_through_any_chain_of_crops(view, data):
    mask = some_mask(data, view.height, view.width)
    assert (lift_to_frame(mask, view) == slowly_lifted(mask, view)).all()


@given(st.data())
def test_a_mask_of_the_frame_comes_back_unchanged_through_an_exact_view_of_whole_pixels(data):
    """The view has a whole number of pixels for each of the frame's: drawn and lifted again, nothing is lost."""
    width, height = data.draw(SIZE), data.draw(SIZE)
    x0 = data.draw(st.integers(0, width - 1))
    y0 = data.draw(st.integers(0, height - 1))
    x1, y1 = data.draw(st.integers(x0 + 1, width)), data.draw(st.integers(y0 + 1, height))
    times_x, times_y = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5))
    whole = whole_frame("s", 0, width=width, height=height, window=None)
    view = whole.zoomed((x0, y0, x1, y1), width=(x1 - x0) * times_x, height=(y1 - y0) * times_y)
    mask = some_mask(data, height, width)
    inside = np.zeros_like(mask)
    inside[y0:y1, x0:x1] = mask[y0:y1, x0:x1]
    assert view.is_exact
    assert (lift_to_frame(project_to_view(mask, view), view) == inside).all()


@given(chains())
def test_an_exact_view_can_tell_any_two_frame_pixels_apart(view):
    """What exact means: the centres of two frame pixels inside the crop never fall in one view pixel. Where the view
    has less than a pixel for each, some mask would be lost, and the view says that it is not exact."""
    x0, y0, x1, y1 = view.crop
    for low, high, pixels, count in ((x0, x1, view.width, view.frame_width), (y0, y1, view.height, view.frame_height)):
        centres = [Fraction(2 * at + 1, 2) for at in range(count)]
        inside = [centre for centre in centres if low <= centre < high]
        places = [int((centre - low) / (high - low) * pixels) for centre in inside]
        if view.is_exact:
            assert len(set(places)) == len(places)
        elif len(inside) > pixels:
            assert len(set(places)) < len(places)


@given(chains(), st.data())
def test_nothing_is_set_outside_the_crop(view, data):
    lifted = lift_to_frame(np.ones((view.height, view.width), dtype=bool), view)
    x0, y0, x1, y1 = view.crop
    for row, column in zip(*np.nonzero(lifted), strict=True):
        assert x0 <= column + Fraction(1, 2) < x1
        assert y0 <= row + Fraction(1, 2) < y1


@given(chains(), st.fractions(0, 30), st.fractions(0, 30))
def test_places_go_to_the_frame_and_back_without_loss(view, x, y):
    assert view.from_frame(*view.to_frame(x, y)) == (x, y)


@given(st.data())
def test_two_crops_are_the_one_crop_that_they_come_to(data):
    whole = whole_frame("s", 0, width=97, height=61, window=None)
    (a0, a1), (b0, b1) = data.draw(edges(97)), data.draw(edges(61))
    once = whole.zoomed((a0, b0, a1, b1), width=13, height=7)
    (c0, c1), (d0, d1) = data.draw(edges(13)), data.draw(edges(7))
    twice = once.zoomed((c0, d0, c1, d1), width=5, height=5)
    direct = whole.zoomed((*once.to_frame(c0, d0), *once.to_frame(c1, d1)), width=5, height=5)
    assert twice == direct


def test_leak_d_a_mask_of_a_crop_lies_where_the_crop_lies():
    """peers.md 6 d: the published environment stretches a crop's mask over the whole image."""
    whole = whole_frame("s", 0, width=100, height=80, window=None)
    view = whole.zoomed((40, 20, 60, 30), width=40, height=20)
    mask = np.zeros((20, 40), dtype=bool)
    mask[4:8, 10:20] = True  # 2 x 5 frame pixels from (45, 22)
    expected = np.zeros((80, 100), dtype=bool)
    expected[22:24, 45:50] = True
    assert (lift_to_frame(mask, view) == expected).all()


@pytest.mark.parametrize(("width", "is_exact"), [(20, True), (19, False)])
def test_a_view_with_less_than_a_pixel_for_each_is_marked(width, is_exact):
    whole = whole_frame("s", 0, width=100, height=80, window=None)
    assert whole.zoomed((40, 20, 60, 30), width=width, height=10).is_exact is is_exact
