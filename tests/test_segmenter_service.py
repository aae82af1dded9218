"""The segmenter process: its door, its limits, what it says and what it keeps to itself."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import structlog
from fastapi.testclient import TestClient

from annotation.cache import PictureCache
from annotation.service import create_service
from backend.agent.segmenter_client import HttpSegmenter
from backend.domain import segmenter_wire as wire
from backend.domain.errors import Misconfigured
from backend.domain.segmenter import (
    BoxPrompt,
    CanonicalPicture,
    ConceptPrompt,
    Prompt,
    Segmentation,
    SegmenterBusy,
    SegmenterTimeout,
    SegmenterUnavailable,
    UnusablePrompt,
)
from backend.settings import Settings
from tests.factories.segmenter import disc_picture
from tests.fakes import BoxSegmenter
from tests.segmenter_process import free_port

TOKEN = "a token of a test, long enough"
PICTURE = disc_picture(60, 80, x=40, y=30, radius=12)
MESSAGE = wire.encode_picture(PICTURE)
SHA256 = wire.picture_sha256(MESSAGE)
BOX = {"box": [10, 10, 30, 40]}


class GatedSegmenter(BoxSegmenter):
    """Answers when its gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.began = threading.Semaphore(0)

    def segment(self, picture: CanonicalPicture, prompt: Prompt) -> Segmentation:
        self.began.release()
        assert self.gate.wait(30)
        return super().segment(picture, prompt)


def make_settings(home: Path, **fields: object) -> Settings:
    return Settings(_env_file=None, home=home, segmenter_token=TOKEN, **fields)  # type: ignore[arg-type]


def make_client(home: Path, segmenter: BoxSegmenter | None = None, **fields: object) -> TestClient:
    app = create_service(segmenter or BoxSegmenter(), make_settings(home, **fields))
    return TestClient(app, headers={"Authorization": f"Bearer {TOKEN}"}, raise_server_exceptions=False)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with make_client(tmp_path) as opened:
        yield opened


def bridged(client: TestClient) -> HttpSegmenter:
    """A client whose calls reach the service without a socket."""
    segmenter = HttpSegmenter("http://segmenter", TOKEN)
    segmenter._http = client
    return segmenter


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}])
def test_every_route_wants_the_token(tmp_path: Path, headers: dict[str, str]) -> None:
    app = create_service(BoxSegmenter(), make_settings(tmp_path))
    with TestClient(app) as stranger:
        routes = [
            ("GET", "/healthz"),
            ("GET", "/bodies"),
            ("GET", "/concepts"),
            ("POST", "/pictures"),
            ("POST", f"/pictures/{SHA256}/prepare"),
            ("POST", f"/pictures/{SHA256}/segment"),
        ]
        for method, path in routes:
            response = stranger.request(method, path, headers=headers)
            assert response.status_code == 401, path
            assert response.json()["error"]["code"] == "not_signed_in"
        assert len(app.routes) == len(routes)


def test_a_picture_goes_over_once_and_prompts_by_its_hash(client: TestClient) -> None:
    assert client.post("/pictures", content=MESSAGE).json() == {"sha256": SHA256}
    answer = wire.decode_segmentation(client.post(f"/pictures/{SHA256}/segment", json=BOX).content)
    assert answer.mask.sum() == 20 * 30


def test_an_unknown_picture_is_a_404_with_a_code_of_its_own(client: TestClient) -> None:
    for action in ("segment", "prepare"):
        response = client.post(f"/pictures/{SHA256}/{action}", json=BOX)
        assert response.status_code == 404
        assert response.json()["error"]["code"] == "picture_unknown"


@pytest.mark.parametrize(
    ("path", "content", "status", "code"),
    [
        ("/pictures", b"not a picture", 422, "invalid_request"),
        ("/pictures/short/segment", b"{}", 422, "invalid_request"),
        ("/nowhere", b"", 404, "not_found"),
    ],
)
def test_what_it_cannot_take_is_refused_in_the_common_form(
    client: TestClient, path: str, content: bytes, status: int, code: str
) -> None:
    response = client.post(path, content=content)
    assert response.status_code == status
    assert response.json()["error"]["code"] == code
    assert set(response.json()["error"]) == {"code", "message", "details"}


def test_a_prompt_that_is_no_json_is_refused(client: TestClient) -> None:
    client.post("/pictures", content=MESSAGE)
    response = client.post(f"/pictures/{SHA256}/segment", content=b"\xff{")
    assert (response.status_code, response.json()["error"]["code"]) == (422, "invalid_request")


def test_a_picture_over_the_limit_is_refused(tmp_path: Path) -> None:
    with make_client(tmp_path, segmenter_max_picture_bytes=1000) as client:
        response = client.post("/pictures", content=MESSAGE)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "file_too_large")


def test_a_full_line_is_busy_and_a_slow_answer_a_timeout(tmp_path: Path) -> None:
    gated = GatedSegmenter()
    with make_client(tmp_path, gated, segmenter_queue=1, segmenter_timeout_s=0.2) as client:
        segmenter = bridged(client)
        with pytest.raises(SegmenterTimeout):
            segmenter.segment(PICTURE, BoxPrompt((10, 10, 30, 40)))
        # The work that nobody waits for still holds its place.
        with pytest.raises(SegmenterBusy) as busy:
            segmenter.segment(PICTURE, BoxPrompt((10, 10, 30, 40)))
        assert busy.value.details == {"retry_after_s": 2}
        assert client.post(f"/pictures/{SHA256}/prepare").json() == {"state": "skipped"}
        gated.gate.set()


def test_a_failed_prompt_gives_its_place_back(tmp_path: Path) -> None:
    with make_client(tmp_path, segmenter_queue=1) as client:
        segmenter = bridged(client)
        for _ in range(3):
            with pytest.raises(UnusablePrompt):
                client_side_unchecked(segmenter)
        assert segmenter.segment(PICTURE, BoxPrompt((10, 10, 30, 40))).is_present


def client_side_unchecked(segmenter: HttpSegmenter) -> None:
    """A box without area, past the client's own check."""
    segmenter._with_picture(PICTURE, "segment", json={"box": [5, 5, 5, 5]})


def test_a_body_that_breaks_is_an_error_without_its_text(tmp_path: Path) -> None:
    class Broken(BoxSegmenter):
        def segment(self, picture: CanonicalPicture, prompt: Prompt) -> Segmentation:
            raise ZeroDivisionError("Doe^Jane")

    with make_client(tmp_path, Broken()) as client:
        client.post("/pictures", content=MESSAGE)
        response = client.post(f"/pictures/{SHA256}/segment", json=BOX)
        assert response.status_code == 500
        assert response.json()["error"]["code"] == "internal_error"
        assert "Doe" not in response.text
        with pytest.raises(SegmenterUnavailable, match="500 internal_error"):
            bridged(client).segment(PICTURE, BoxPrompt((10, 10, 30, 40)))


def test_the_words_of_a_prompt_are_not_logged(client: TestClient) -> None:
    client.post("/pictures", content=wire.encode_picture(CanonicalPicture(PICTURE.pixels, modality="DX")))
    with structlog.testing.capture_logs() as lines:
        answer = bridged(client).segment(CanonicalPicture(PICTURE.pixels, modality="DX"), ConceptPrompt("lungs"))
    assert answer.is_present
    assert [line["event"] for line in lines] == ["prompt_answered"]
    assert "lungs" not in json.dumps(lines)


def test_a_failed_warm_up_is_shown_and_the_rest_goes_on(tmp_path: Path) -> None:
    failed = threading.Event()

    def warm_up() -> None:
        failed.set()
        raise Misconfigured("the weights are not the pinned ones")

    app = create_service(BoxSegmenter(), make_settings(tmp_path), warm_up=warm_up)
    with TestClient(app, headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        assert failed.wait(10)
        for _ in range(100):
            if client.get("/healthz").json()["status"] == "degraded":
                break
        assert client.get("/healthz").json() == {"status": "degraded", "code": "misconfigured"}
        assert client.get("/concepts", params={"modality": "DX"}).json() == {"concepts": ["lungs"]}


def test_the_client_sends_a_forgotten_picture_again(tmp_path: Path) -> None:
    # Room for one picture: the second drops the first.
    with make_client(tmp_path, segmenter_cache_bytes=len(MESSAGE)) as client:
        segmenter, other = bridged(client), CanonicalPicture(np.zeros((60, 80), dtype=np.uint8))
        for picture in (PICTURE, other, PICTURE):
            assert segmenter.segment(picture, BoxPrompt((10, 10, 30, 40))).mask.sum() == 600


def test_nobody_at_the_address_is_unavailable() -> None:
    with HttpSegmenter(f"http://127.0.0.1:{free_port()}", TOKEN) as nobody:
        for call in (nobody.bodies, lambda: nobody.segment(PICTURE, BoxPrompt((0, 0, 9, 9)))):
            with pytest.raises(SegmenterUnavailable, match="no segmenter answers"):
                call()


def test_a_picture_that_never_arrives_is_asked_for_twice_and_no_more() -> None:
    calls: list[str] = []

    def forgetful(request: httpx.Request) -> httpx.Response:
        calls.append(request.url.path.rpartition("/")[2])
        if request.url.path == "/pictures":
            return httpx.Response(201, json={"sha256": SHA256})
        return httpx.Response(404, json={"error": {"code": "picture_unknown", "message": "", "details": {}}})

    segmenter = HttpSegmenter("http://segmenter", TOKEN)
    segmenter._http = httpx.Client(transport=httpx.MockTransport(forgetful), base_url="http://segmenter")
    with pytest.raises(SegmenterUnavailable, match="does not keep"):
        segmenter.segment(PICTURE, BoxPrompt((0, 0, 9, 9)))
    assert calls == ["segment", "pictures", "segment"]


def test_a_wrong_token_is_a_setting_to_mend(tmp_path: Path) -> None:
    stranger = TestClient(create_service(BoxSegmenter(), make_settings(tmp_path)))
    with pytest.raises(Misconfigured, match="SERPENS_SEGMENTER_TOKEN"):
        bridged(stranger).bodies()


def test_the_token_in_home_is_made_once_and_read_by_its_owner_only(tmp_path: Path) -> None:
    settings = Settings(_env_file=None, home=tmp_path / "home")
    token = settings.segmenter_secret()
    assert len(token) >= 43
    assert Settings(_env_file=None, home=tmp_path / "home").segmenter_secret() == token
    assert (tmp_path / "home" / "segmenter.token").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["segmenter.token"]


def test_the_cache_drops_the_picture_used_longest_ago() -> None:
    cache = PictureCache(max_bytes=20)
    for name in ("a", "b"):
        cache.put(name, PICTURE, 10)
    cache.get("a")
    cache.put("c", PICTURE, 10)
    assert [cache.get(name) is not None for name in ("a", "b", "c")] == [True, False, True]
    cache.put("large", PICTURE, 100)
    assert [cache.get(name) is not None for name in ("a", "c", "large")] == [False, False, True]
