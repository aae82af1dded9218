"""Who sees what: nobody without a session, no stranger, and no trace after signing out."""

import re

import httpx
import pytest

from tests.pages_data import dicom_phantom
from tests.pages_fixtures import *  # noqa: F403
from tests.pages_fixtures import OpenPage, Shoot
from tests.product import Product

PAGES = ("/", "/config", "/theme.css", "/assets/viewer/shell.js", "/assets/viewer/viewer.js", "/static/img/x.png")


@pytest.mark.parametrize("path", PAGES)
def test_c65_nothing_of_the_pages_is_served_without_a_session(product: Product, path: str):
    assert httpx.get(f"{product.url}{path}").status_code == 401
    browser = httpx.get(f"{product.url}{path}", headers={"Accept": "text/html"})
    assert (browser.status_code, browser.headers["location"]) == (303, "/login")


@pytest.mark.parametrize(
    "path",
    [
        "/gradio_api/file=/etc/passwd",
        "/gradio_api/file/etc/passwd",
        "/gradio_api/proxy=http://127.0.0.1/",
        "/gradio_api/runs",
        "/gradio_api/openapi.json",
        "/monitoring",
        "/docs",
        "/assets/viewer/../main.py",
        "/assets/viewer/%2e%2e/%2e%2e/main.py",
        "/login/../main.py",
        "/login/page.html/../../../main.py",
    ],
)
def test_c64_gradios_own_file_routes_are_closed(product: Product, path: str):
    with product.client("admin") as client:
        assert client.get(path).status_code == 404


def test_c64_gradio_takes_no_file(product: Product):
    with product.client("admin") as client:
        answer = client.post("/gradio_api/upload", files={"files": ("a.txt", b"text")})
    assert answer.status_code == 404


def test_a_wrong_password_is_said_in_words(page: OpenPage, product: Product):
    watched = page()
    watched.page.goto(product.url)
    watched.page.fill("#name", "clinician")
    watched.page.fill("#password", "not this one")
    watched.page.click("form button")
    watched.page.wait_for_function("() => document.querySelector('#problem').textContent")
    assert watched.page.inner_text("#problem") == "Name and password do not match an account."


def test_a_stranger_finds_nothing_and_an_engineer_sees_no_name(page: OpenPage, product: Product):
    with product.client("admin") as admin:
        project_id = admin.post("/api/projects", json={"name": "Somebody else's"}).raise_for_status().json()["id"]
    study_id = product.upload(dicom_phantom(), project_id=project_id)["study_ids"][0]
    mine_id = product.upload(dicom_phantom())["study_ids"][0]
    stranger = page()
    stranger.sign_in(at=f"#/case/{study_id}")
    stranger.page.wait_for_selector(".sp-stage-notice h2")
    assert stranger.page.inner_text(".sp-stage-notice h2") == "There is nothing here to show"
    assert all(line.startswith("404 ") for line in stranger.refused)
    engineer = page()
    engineer.sign_in("engineer", at=f"#/case/{mine_id}")
    engineer.wait_for_image()
    assert "CANARY" not in engineer.page.content()
    engineer.page.click("#sp-header a[data-to=worklist]")
    engineer.page.wait_for_selector(".sp-study")
    assert "CANARY" not in engineer.page.content()
    engineer.require_clean()


def test_after_signing_out_back_shows_nothing(page: OpenPage, product: Product):
    study_id = product.upload(dicom_phantom())["study_ids"][0]
    watched = page()
    watched.sign_in()
    watched.page.wait_for_selector(".sp-study")
    watched.open_study(study_id)
    assert "CANARY" in watched.page.inner_text(".sp-facts")
    watched.page.click(".sp-user")
    watched.page.click(".sp-menu button:has-text('Sign out')")
    watched.page.wait_for_url(re.compile("/login"))
    for _ in range(2):
        watched.page.go_back()
        watched.page.wait_for_timeout(400)
        assert "CANARY" not in watched.page.content()
        assert "sp-study" not in watched.page.content()


def test_an_admin_makes_a_user_who_can_sign_in(page: OpenPage, product: Product, shoot: Shoot):
    admin = page()
    admin.sign_in("admin")
    admin.page.click("#sp-header a[data-to=admin]")
    admin.page.wait_for_selector("#sp-users table")
    admin.page.wait_for_timeout(300)
    shoot(admin, "admin-1600x920")
    admin.page.fill("#sp-new-user-name :is(input, textarea)", "nora")
    admin.page.fill("#sp-new-user-display :is(input, textarea)", "Nora <b>Reader</b>")
    admin.page.click("#sp-create-user")
    admin.page.wait_for_function("() => /shown this once: /.test(document.querySelector('.sp-notice').textContent)")
    password = admin.page.inner_text(".sp-notice").rpartition(": ")[2]
    admin.page.wait_for_function("() => document.querySelector('#sp-users').textContent.includes('<b>Reader</b>')")
    admin.require_clean()
    nora = page()
    nora.sign_in("nora", password)
    nora.page.wait_for_selector(".sp-empty")
    assert nora.page.inner_text(".sp-empty h2") == "You are in no project yet"
    nora.require_clean()


def test_an_engineer_sees_the_system_and_no_accounts(page: OpenPage, product: Product):
    watched = page()
    watched.sign_in("engineer")
    watched.page.click("#sp-header a[data-to=admin]")
    watched.page.wait_for_selector("#sp-system table", timeout=15_000)
    assert watched.page.locator("button[role=tab]:visible").all_inner_texts() == ["System"]
    watched.require_clean()


def test_a_changed_password_holds(page: OpenPage, product: Product):
    with product.client("admin") as admin:
        body = {"name": "piet", "role": "clinician", "password": "a long first password"}
        admin.post("/api/users", json=body).raise_for_status()
    watched = page()
    watched.sign_in("piet", "a long first password")
    watched.page.click(".sp-user")
    watched.page.click(".sp-menu button:has-text('Change password')")
    watched.page.fill("#sp-old-password", "a long first password")
    watched.page.fill("#sp-new-password", "a long second password")
    watched.page.fill("#sp-new-password-again", "a long second password")
    watched.page.click(".sp-dialog button:has-text('Change password')")
    watched.page.click(".sp-dialog button:has-text('Sign in')")
    watched.page.wait_for_url(re.compile("/login"))
    watched.sign_in("piet", "a long second password")
    watched.require_clean()
