"""The upload page: what goes, what is refused, what did not arrive and can be sent again."""

from playwright.sync_api import Route

from tests.pages_data import dicom_phantom, folder_files
from tests.pages_fixtures import *  # noqa: F403
from tests.pages_fixtures import OpenPage, Shoot
from tests.product import Watched, zipped


def choose(watched: Watched, files: list[tuple[str, bytes]]) -> None:
    """Choose files by hand."""
    watched.page.set_input_files(
        "#sp-files",
        [{"name": name, "mimeType": "application/octet-stream", "buffer": content} for name, content in files],
    )


def test_a_refused_file_is_listed_by_its_code_and_the_rest_goes_in(page: OpenPage, shoot: Shoot):
    watched = page(width=1280, height=720)
    watched.sign_in(at="#/upload")
    choose(
        watched,
        [*dicom_phantom(), ("readme.txt", b"no image at all"), ("broken.png", b"\x89PNG\r\n\x1a\n" + b"x" * 40)],
    )
    watched.page.click("#sp-send")
    watched.page.wait_for_selector(".sp-open")
    assert watched.page.inner_text("[data-outcome=stored] b") == "6"
    assert watched.page.inner_text("[data-outcome=refused] b") == "2"
    rows = [row.split("\t") for row in watched.page.locator(".sp-table tbody tr").all_inner_texts()]
    assert sorted((row[0], row[2]) for row in rows) == [
        ("broken.png", "unreadable_file"),
        ("readme.txt", "unsupported_file"),
    ]
    shoot(watched, "upload-result-1280x720")
    watched.require_clean()


def test_progress_is_visible_while_files_go(page: OpenPage, shared_data, shoot: Shoot):
    watched = page()
    watched.sign_in(at="#/upload")
    network = watched.page.context.new_cdp_session(watched.page)
    slow = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 3_000_000}
    choose(watched, [("head.zip", zipped(folder_files(shared_data / "dicom" / "ct_axial_28")))])
    network.send("Network.emulateNetworkConditions", slow)
    watched.page.click("#sp-send")
    watched.page.wait_for_function(
        """() => { const now = Number(document.querySelector(".sp-bar")?.getAttribute("aria-valuenow"));
                   return now > 5 && now < 95 && /sent/.test(document.querySelector(".sp-sheet").textContent); }"""
    )
    watched.page.click("#sp-header a[data-to=worklist]")
    assert watched.page.inner_text(".sp-chip-live").startswith("uploading ")
    watched.page.click(".sp-chip-live")
    shoot(watched, "uploading-1600x920")
    watched.page.wait_for_selector(".sp-open", timeout=60_000)
    watched.require_clean()


def test_files_that_did_not_go_are_named_and_sent_again_by_one_click(page: OpenPage):
    watched = page()
    watched.sign_in(at="#/upload")
    attempts: list[str] = []

    def fail(route: Route) -> None:
        attempts.append(route.request.url)
        route.abort("connectionreset")

    watched.page.route("**/api/uploads/*/files", fail)
    choose(watched, dicom_phantom(reversed_rows_and_columns=True))
    watched.page.click("#sp-send")
    watched.page.wait_for_selector("#sp-resend", timeout=20_000)
    assert len(attempts) == 4
    assert watched.page.inner_text(".sp-sheet h1") == "6 files did not go"
    assert watched.page.locator(".sp-table tbody tr").count() == 6
    watched.page.unroute("**/api/uploads/*/files")
    watched.page.click("#sp-resend")
    watched.page.wait_for_selector(".sp-open")
    assert watched.page.inner_text("[data-outcome=stored] b") == "6"
    assert watched.refused == []


def test_cancelling_leaves_nothing_behind_and_keeps_the_choice(page: OpenPage):
    watched = page()
    watched.sign_in(at="#/upload")
    network = watched.page.context.new_cdp_session(watched.page)
    slow = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 20_000}
    choose(watched, [("noise.bin", bytes(400_000))])
    network.send("Network.emulateNetworkConditions", slow)
    watched.page.click("#sp-send")
    watched.page.click("button:has-text('Cancel')")
    assert watched.page.inner_text(".sp-sheet h1") == "Cancelled"
    watched.page.click("button:has-text('Back to the files')")
    assert watched.page.inner_text(".sp-staged b") == "1 file · 391 kB"
