"""The running product with a runner whose policy a test may choose, and shorthands for the trace column."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator

from backend.agent.pictures import PictureLimits
from backend.agent.policy import Message, Policy, SpeakLimits, Utterance
from backend.agent.scripted import ScriptedPolicy
from backend.domain.trace import PolicyBody
from tests.fakes_agent import SayPolicy
from tests.pages_fixtures import shoot  # noqa: F401
from tests.product import Product, Watched, open_page, open_product
from tests.services import ROOT
from tests.viewer_fixtures import cpu_browser, playwright_driver  # noqa: F401
from tests.viewer_page import build_bundle

SAMPLES = ROOT / "backend" / "samples" / "files"
RUN_TIMEOUT_MS = 90_000
OpenTrace = Callable[..., "TracePage"]


class ChosenPolicy:
    """The demonstration policy, or what a test puts in its place for a while."""

    def __init__(self) -> None:
        self.now: Policy = ScriptedPolicy()

    @property
    def body(self) -> PolicyBody:
        return self.now.body

    @property
    def pictures(self) -> PictureLimits:
        return self.now.pictures

    def speak(
        self,
        messages: Sequence[Message],
        *,
        limits: SpeakLimits,
        on_preview: Callable[[str], None],
        should_stop: Callable[[], bool],
    ) -> Utterance:
        return self.now.speak(messages, limits=limits, on_preview=on_preview, should_stop=should_stop)

    @contextmanager
    def saying(self, *turns: str) -> Iterator[None]:
        """These turns, one after the other."""
        with self.being(SayPolicy(*turns, pictures=PictureLimits())):
            yield

    @contextmanager
    def being(self, policy: Policy) -> Iterator[None]:
        """Another policy."""
        self.now, before = policy, self.now
        try:
            yield
        finally:
            self.now = before


class WaitingPolicy(SayPolicy):
    """Streams a preview and then waits for a test, or for the run to be cancelled."""

    def __init__(self, preview: str, *turns: str) -> None:
        super().__init__(*turns, pictures=PictureLimits())
        self.preview, self.may_speak = preview, threading.Event()

    def speak(self, messages: Sequence[Message], **given: Any) -> Utterance:
        while not self.may_speak.wait(0.05):
            given["on_preview"](self.preview)
            if given["should_stop"]():
                return Utterance(self.preview, tokens_used=1, seconds=0.1, was_interrupted=True)
        return super().speak(messages, **given)


@dataclass
class Series:
    """An uploaded study with one series."""

    study_id: str
    series_id: str


@dataclass
class TracePage:
    """A page that shows a study, seen by its trace column."""

    watched: Watched

    @property
    def page(self) -> Any:
        return self.watched.page

    def step(self, number: int) -> Locator:
        """The card of a step of the run itself."""
        return self.page.locator(f".sp-step:not(.sp-parent):has(.sp-step-number:text-is('{number}'))")

    @property
    def answer(self) -> Locator:
        return self.page.locator(".sp-step:not(.sp-parent)[data-kind=answer]")

    def ask(self, question: str, *, wait: bool = True) -> None:
        """Ask by hand and, unless told otherwise, wait until the run stopped."""
        self.page.fill(".sp-ask-text >> nth=0", question)
        self.page.press(".sp-ask-text >> nth=0", "Enter")
        self.page.wait_for_function("() => document.querySelector('.sp-ask-text').value === ''")
        if wait:
            self.wait_until_stopped()

    def wait_until_stopped(self) -> None:
        self.page.wait_for_selector(
            ".sp-run-state:is([data-state=answered], [data-state=ended])", timeout=RUN_TIMEOUT_MS
        )

    def wait_until_saved(self) -> None:
        """Nothing is on its way any more."""
        self.page.wait_for_function(
            "() => [...document.querySelectorAll('.sp-save')].every((one) => one.textContent === '')"
        )

    @property
    def run_id(self) -> str:
        """The run whose steps are on the screen."""
        key: str = self.page.locator(".sp-step:not(.sp-parent)").first.get_attribute("data-key")
        return key.split("/")[0]

    def feedback(self, name: str = "clinician") -> list[dict[str, Any]]:
        """What the server has of a person's judgements of this run."""
        with self.watched.product.client(name) as client:
            found = client.get(f"/api/runs/{self.run_id}/feedback").raise_for_status().json()
        return list(found["feedback"])

    def events(self) -> list[dict[str, Any]]:
        """What the server has stored of this run."""
        with self.watched.product.client() as client:
            lines = client.get(f"/api/runs/{self.run_id}/events").raise_for_status().text.splitlines()
        return [json.loads(line[6:]) for line in lines if line.startswith('data: {"sequence"')]


@pytest.fixture(scope="module")
def policy() -> ChosenPolicy:
    """Who answers the runs of `product`."""
    return ChosenPolicy()


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory, policy: ChosenPolicy) -> Iterator[Product]:
    """The product with the embedded segmenter and a runner."""
    build_bundle()
    with open_product(tmp_path_factory.mktemp("home"), policy=policy) as running:
        yield running


def upload_sample(product: Product, *names: str, **stated: str) -> Series:
    """Upload files of the samples as one study."""
    files = [(Path(name).name, (SAMPLES / name).read_bytes()) for name in names]
    study_id = product.upload(files, **stated)["study_ids"][0]
    return Series(study_id, product.study(study_id)["series"][0]["id"])


@pytest.fixture(scope="module")
def xray(product: Product) -> Series:
    """A chest X-ray of the samples."""
    return upload_sample(product, "chest_xray_1.jpg", stated_modality="DX", stated_description="Chest, PA")


@pytest.fixture(scope="module")
def ct(product: Product) -> Series:
    """A CT of 30 slices of the samples."""
    return upload_sample(product, "ct_abdomen.nii.gz", stated_modality="CT", stated_description="Abdomen")


@pytest.fixture
def trace(cpu_browser: Browser, product: Product) -> Iterator[OpenTrace]:  # noqa: F811
    """Opens a study on the page of a person: `trace(xray, name="engineer", width=1280, height=720)`."""
    with ExitStack() as opened:

        def open_trace(series: Series, *, name: str = "clinician", **size: int) -> TracePage:
            watched = opened.enter_context(open_page(cpu_browser, product, **size))
            watched.sign_in(name, at=f"#/case/{series.study_id}")
            watched.wait_for_image()
            return TracePage(watched)

        yield open_trace
