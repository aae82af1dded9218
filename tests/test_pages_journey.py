"""From signing in to the picture, in the real product and a real browser."""

import json

import numpy as np
import pytest

from tests.pages_data import CANARY_ID, CANARY_NAME, dicom_phantom, folder_files
from tests.pages_fixtures import *  # noqa: F403
from tests.pages_fixtures import OpenPage, Shoot
from tests.product import Product, Watched, zipped


def upload_in_browser(
    watched: Watched, name: str, content: bytes, *, modality: str = "", description: str = ""
) -> None:
    """Upload one file by hand and wait for its result."""
    page = watched.page
    page.click("#sp-header a[data-to=upload]")
    page.set_input_files("#sp-files", {"name": name, "mimeType": "application/octet-stream", "buffer": content})
    page.select_option("#sp-stated-modality", modality)
    page.fill("#sp-stated-description", description)
    page.click("#sp-send")
    page.wait_for_selector(".sp-open")


def test_sign_in_upload_a_zip_and_read_it(page: OpenPage, product: Product, shared_data, shoot: Shoot):
    watched = page()
    watched.page.goto(product.url)
    watched.page.wait_for_selector("#offered button")
    shoot(watched, "login-1600x920")
    watched.page.click("#offered button:has-text('clinician')")
    watched.page.click("form button")
    watched.page.wait_for_selector(".sp-empty")
    assert watched.page.inner_text(".sp-empty h2") == "No studies yet"

    upload_in_browser(watched, "head.zip", zipped(folder_files(shared_data / "dicom" / "ct_axial_28")))
    assert watched.page.inner_text("[data-outcome=stored] b") == "28"
    shoot(watched, "upload-result-1600x920")
    watched.page.evaluate("() => { window.untouched = true; }")
    watched.page.click(".sp-open")
    watched.wait_for_image()
    state = watched.viewer_state()
    assert (state["count"], state["renderMode"]) == (28, "cpu")

    stage = watched.page.locator(".sp-stage").bounding_box()
    assert stage is not None
    middle = (stage["x"] + stage["width"] / 2, stage["y"] + stage["height"] / 2)
    watched.page.mouse.move(*middle)
    watched.page.mouse.wheel(0, 120)
    watched.page.wait_for_function(
        "(before) => document.querySelector('.sp-stage').serpensViewer.state().index !== before", arg=state["index"]
    )
    watched.page.mouse.down()
    watched.page.mouse.move(middle[0] + 60, middle[1] + 20, steps=5)
    watched.page.mouse.up()
    assert watched.viewer_state()["window"] != state["window"]
    watched.page.wait_for_function("() => /frames 28 . 28/.test(document.querySelector('.sp-status').textContent)")
    watched.page.keyboard.press("0")
    shoot(watched, "case-ct-1600x920")
    watched.page.set_viewport_size({"width": 1280, "height": 720})
    watched.page.wait_for_timeout(200)
    shoot(watched, "case-ct-1280x720")

    assert watched.page.evaluate("() => window.untouched"), "opening a case loaded the page anew"
    watched.page.go_back()
    watched.page.wait_for_selector("#sp-upload .sp-outcomes")
    watched.page.go_forward()
    watched.wait_for_image()
    watched.require_clean()


@pytest.mark.parametrize(
    ("file", "modality", "is_colour"),
    [
        ("images2d/chest_xray/1.jpg", "DX", False),
        ("images2d/skimage/retina.jpg", "OP", True),
        ("nifti/nibabel/anatomical.nii", "MR", False),
    ],
)
def test_pictures_and_nifti_open(
    page: OpenPage, product: Product, shared_data, shoot: Shoot, file: str, modality: str, is_colour: bool
):
    watched = page()
    watched.sign_in()
    path = shared_data / file
    upload_in_browser(watched, path.name, path.read_bytes(), modality=modality, description=f"Test {modality}")
    watched.page.click(".sp-open")
    watched.wait_for_image()
    assert watched.page.inner_text("#sp-header .sp-crumb b") == f"Test {modality}"
    drawn = watched.page.evaluate(
        """() => { const canvas = document.querySelector(".sp-stage").serpensViewer.canvas;
                   const copy = document.createElement("canvas");
                   [copy.width, copy.height] = [canvas.width, canvas.height];
                   const context = copy.getContext("2d"); context.drawImage(canvas, 0, 0);
                   const { data } = context.getImageData(canvas.width >> 1, canvas.height >> 2, 1, canvas.height >> 1);
                   return [...data]; }"""
    )
    pixels = np.array(drawn).reshape(-1, 4)[:, :3]
    assert pixels.max() > 60, "the middle of the picture is black"
    assert bool(np.ptp(pixels, axis=1).max() > 30) is is_colour
    shoot(watched, f"case-{modality.lower()}-1600x920")
    watched.require_clean()


def test_the_worklist_by_keys_search_and_back(page: OpenPage, product: Product, shoot: Shoot):
    product.upload(dicom_phantom())
    watched = page()
    watched.sign_in()
    watched.page.wait_for_selector(".sp-study")
    watched.page.wait_for_load_state("networkidle")
    shoot(watched, "worklist-1600x920")
    watched.page.set_viewport_size({"width": 1280, "height": 720})
    shoot(watched, "worklist-1280x720")
    watched.page.keyboard.press("/")
    watched.page.keyboard.type("canary", delay=20)
    watched.page.wait_for_function("() => document.querySelectorAll('.sp-study').length === 1")
    assert watched.page.inner_text(".sp-study .sp-cell-main >> nth=0") == f"ZZTEST, CANARY\n{CANARY_ID}"
    watched.page.keyboard.press("ArrowDown")
    watched.page.keyboard.press("Enter")
    watched.wait_for_image()
    assert watched.page.inner_text(".sp-facts dd >> nth=0") == "ZZTEST, CANARY"
    watched.page.go_back()
    watched.page.wait_for_selector(".sp-study")
    assert watched.page.input_value(".sp-search input") == "canary"
    watched.require_clean()


def test_the_browser_keeps_nothing_of_the_patient(page: OpenPage, product: Product):
    study_id = product.upload(dicom_phantom())["study_ids"][0]
    watched = page()
    watched.sign_in(at=f"#/case/{study_id}")
    watched.wait_for_image()
    kept = watched.page.evaluate(
        """async () => JSON.stringify([Object.entries(localStorage), Object.entries(sessionStorage),
             await indexedDB.databases(), await caches.keys(), document.cookie, document.title, location.href])"""
    )
    for value in (CANARY_NAME, "CANARY", CANARY_ID, "1.2.826", "phantom"):
        assert value not in kept
    assert json.loads(kept)[2:5] == [[], [], ""]
    addresses = watched.page.evaluate("() => performance.getEntriesByType('resource').map((one) => one.name).join()")
    assert "CANARY" not in addresses
    assert "1.2.826" not in addresses
    watched.require_clean()


def test_the_real_product_draws_with_webgl(webgl_page: OpenPage, product: Product):
    study_id = product.upload(dicom_phantom())["study_ids"][0]
    watched = webgl_page(width=800, height=600)
    watched.sign_in(at=f"?render=webgl#/case/{study_id}")
    watched.page.goto(f"{product.url}/?render=webgl#/case/{study_id}")
    watched.wait_for_image()
    assert watched.viewer_state()["renderMode"] == "webgl"
    watched.require_clean()
