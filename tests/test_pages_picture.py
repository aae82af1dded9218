"""What the product shows is where it lies in the patient, and as grey as `imaging.render` says."""

import base64
import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.pages_data import COLUMNS, ROWS, SLICES, dicom_phantom, folder_files, nifti_phantom
from tests.pages_fixtures import *  # noqa: F403
from tests.pages_fixtures import OpenPage
from tests.product import Product, Watched
from tests.viewer_page import READ_PICTURE

READ_STAGE = READ_PICTURE.replace('getElementById("stage")', 'querySelector(".sp-stage")')

# Window 0/401 of the phantom, DICOM PS3.3 C.11.2.1.2: value x becomes ((x + 0.5) / 400 + 0.5) x 255.
GREY_RIGHT_ANTERIOR, GREY_HEAD_ONLY, GREY_BACKGROUND = 192, 160, 0


def read_picture(watched: Watched, pixel: dict[str, Any]) -> np.ndarray:
    """The picture on the screen as (rows, columns, 3) at one device pixel a picture pixel."""
    sides = {"rows": pixel["rows"], "columns": pixel["columns"]}
    data = np.frombuffer(base64.b64decode(watched.page.evaluate(READ_STAGE, sides)), np.uint8)
    return data.reshape(pixel["rows"], pixel["columns"], 4)[..., :3].astype(int)


def show_phantom(watched: Watched, product: Product, files: list[tuple[str, bytes]]) -> tuple[dict[str, Any], int]:
    """Upload and open it with window 0/401; returns the series and the slice nearest the head, which is shown."""
    study_id = product.upload(files, stated_modality="CT")["study_ids"][0]
    with product.client() as client:
        series = client.get(f"/api/series/{product.study(study_id)['series'][0]['id']}").json()
    head = max(range(SLICES), key=lambda index: series["frames"][index]["ipp"][2])
    watched.sign_in(at=f"#/case/{study_id}")
    watched.wait_for_image()
    go_to(watched, head)
    return series, head


def go_to(watched: Watched, index: int) -> None:
    """Show a slice with the phantom's window."""
    watched.page.evaluate(
        """(index) => { const viewer = document.querySelector(".sp-stage").serpensViewer;
                        viewer.goTo(index); viewer.setWindow({ center: 0, width: 401 }); }""",
        index,
    )
    watched.wait_for_image()


def grey(picture: np.ndarray, right_left: float, anterior_posterior: float, *, turned: bool) -> int:
    """The grey at voxel (x from the right, y from the front); `turned`: the picture is turned by 180 degrees."""
    x, y = int(right_left), int(anterior_posterior)
    return int(picture[ROWS - 1 - y, COLUMNS - 1 - x, 0] if turned else picture[y, x, 0])


@pytest.mark.parametrize("kind", ["dicom", "dicom turned", "nifti to the left", "nifti to the right"])
def test_left_right_up_and_down_are_the_patients(page: OpenPage, product: Product, kind: str):
    files = {
        "dicom": dicom_phantom,
        "dicom turned": lambda: dicom_phantom(reversed_rows_and_columns=True),
        "nifti to the left": lambda: [("left.nii", nifti_phantom(stored_to_the_left=True))],
        "nifti to the right": lambda: [("right.nii", nifti_phantom(stored_to_the_left=False))],
    }[kind]()
    is_turned = kind == "dicom turned"
    watched = page()
    series, head = show_phantom(watched, product, files)
    shown = {side: watched.page.inner_text(f".sv-letter-{side}") for side in ("left", "right", "top", "bottom")}
    assert list(shown.values()) == (["L", "R", "P", "A"] if is_turned else ["R", "L", "A", "P"])
    picture = read_picture(watched, series["pixel"])
    assert abs(grey(picture, 10, 6, turned=is_turned) - GREY_RIGHT_ANTERIOR) <= 1
    assert abs(grey(picture, 31, 27, turned=is_turned) - GREY_HEAD_ONLY) <= 1
    for x, y in ((31, 6), (10, 27)):
        assert grey(picture, x, y, turned=is_turned) == GREY_BACKGROUND
    foot = SLICES - 1 - head
    assert {head, foot} == {0, SLICES - 1}
    go_to(watched, foot)
    picture = read_picture(watched, series["pixel"])
    assert abs(grey(picture, 10, 6, turned=is_turned) - GREY_RIGHT_ANTERIOR) <= 1
    assert grey(picture, 31, 27, turned=is_turned) == GREY_BACKGROUND
    watched.require_clean()


@pytest.mark.parametrize("window", [(40, 80), (-600, 1500)])
def test_the_viewport_agrees_with_the_render_to_one_grey_level(
    page: OpenPage, product: Product, shared_data, window: tuple[int, int]
):
    study_id = product.upload(folder_files(shared_data / "dicom" / "ct_axial_28"))["study_ids"][0]
    series_id = product.study(study_id)["series"][0]["id"]
    watched = page()
    watched.sign_in(at=f"#/case/{study_id}")
    watched.wait_for_image()
    center, width = window
    watched.page.evaluate(
        "([center, width]) => document.querySelector('.sp-stage').serpensViewer.setWindow({ center, width })",
        [center, width],
    )
    index = watched.viewer_state()["index"]
    with product.client() as client:
        series = client.get(f"/api/series/{series_id}").json()
        answer = client.get(
            f"/api/series/{series_id}/frames/{index}/picture", params={"center": center, "width": width}
        )
    rendered = np.array(Image.open(io.BytesIO(answer.raise_for_status().content)).convert("RGB")).astype(int)
    shown = read_picture(watched, series["pixel"])
    assert shown.shape == rendered.shape == (512, 512, 3)
    assert np.abs(shown - rendered).max() <= 1
    assert rendered.max() - rendered.min() >= 200
