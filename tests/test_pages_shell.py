"""The pages without a browser: what is served, and what of Gradio's own page is left out."""

import re

import httpx
import pytest

import app.main
from app.login import OfferedLogin, login_page
from backend.domain.errors import Misconfigured
from backend.settings import Settings
from tests.pages_fixtures import *  # noqa: F403
from tests.product import Product


def get_page(product: Product) -> httpx.Response:
    """The page as a signed-in browser gets it."""
    with product.client() as client:
        return client.get("/", headers={"Accept": "text/html", "Accept-Encoding": "gzip, br"})


def test_the_page_brings_our_shell_first_and_names_no_other_origin(product: Product):
    answer = get_page(product)
    assert answer.status_code == 200
    assert int(answer.headers["content-length"]) == len(answer.content)
    head = answer.text.partition("<style>")[0]
    assert '<script type="module" src="/assets/viewer/shell.js">' in head
    assert re.findall(r'(?:src|href|content)="(https?://[^"]*)"', answer.text) == []
    for dropped in ("manifest.json", "iframeResizer.contentWindow", 'property="og:', 'name="twitter:'):
        assert dropped not in answer.text


def test_the_page_is_not_kept_and_allows_its_own_origin_only(product: Product):
    headers = get_page(product).headers
    assert headers["cache-control"] == "no-store"
    assert headers["content-security-policy"].startswith("default-src 'self'")


def test_analytics_history_and_the_api_of_gradio_are_off(product: Product):
    page = get_page(product).text
    assert '"analytics_enabled":false' in page.replace(" ", "")
    assert '"run_history":true' not in page.replace(" ", "")
    with product.client() as client:
        assert client.get("/gradio_api/info").json()["named_endpoints"] == {}


def test_the_bundle_is_asked_for_anew_and_answered_304(product: Product):
    with product.client() as client:
        first = client.get("/assets/viewer/shell.js")
        again = client.get("/assets/viewer/shell.js", headers={"If-None-Match": first.headers["etag"]})
    assert first.headers["cache-control"] == "no-cache"
    assert again.status_code == 304


def test_offered_logins_cannot_end_the_script_they_stand_in():
    page = login_page([OfferedLogin("a", "</script><b>$people", "p")])
    assert page.count("</script>") == 2
    assert "\\u003c/script>\\u003cb>$people" in page


def test_without_the_bundle_the_mend_is_named(settings: Settings, tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(app.main, "BUNDLE", tmp_path)
    with pytest.raises(Misconfigured, match=r"run \.ci/bundle"):
        app.main.create_web(settings)
