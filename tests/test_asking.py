"""`serpens ask` from the command line, with the embedded segmenter and the demonstration policy on a chest X-ray."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from annotation.segmenters.embedded import EmbeddedSegmenter
from backend import asking, cli
from backend.agent.scripted import ScriptedPolicy
from backend.domain.access import Role
from backend.domain.trace import RunLimits, RunState
from backend.runner import Runner
from backend.services import runs
from backend.services.context import utc_now
from backend.store.repository import Store
from tests.clinic import Clinic

SAMPLE = Path(__file__).parent.parent / "backend" / "samples" / "files" / "chest_xray_1.jpg"
on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
pytestmark = on_sqlite


@pytest.fixture
def clinic(store, blobs, settings, project, make_actor, monkeypatch) -> Clinic:
    monkeypatch.setattr(cli, "_settings", lambda **_: settings)
    monkeypatch.setattr(cli, "_open_store", lambda _: Store(settings.database))
    return Clinic(store, blobs, settings, utc_now, make_actor(Role.ADMIN, project, name="admin"))


@pytest.fixture
def working(clinic: Clinic) -> Iterator[Runner]:
    services = replace(clinic.services, segmenter=EmbeddedSegmenter())
    runner = Runner(services, ScriptedPolicy(), threads=1)
    thread = threading.Thread(target=runner.serve, daemon=True)
    thread.start()
    yield runner
    runner.stop()
    thread.join(60)


def serpens(*arguments: str, capsys: Any) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    import sys

    before, sys.argv = sys.argv, ["serpens", *arguments]
    try:
        cli.main()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.argv = before
    told = capsys.readouterr()
    return code, told.out, told.err


def test_a_chest_x_ray_is_asked_about_and_every_event_is_a_line(clinic: Clinic, working: Runner, capsys: Any) -> None:
    (series,) = clinic.take_in({"x.jpg": SAMPLE.read_bytes()}, stated_modality="DX")
    capsys.readouterr()
    code, out, _ = serpens("ask", series.id, "How large are the lungs?", "--json", capsys=capsys)
    events = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    kinds = [event["payload"]["kind"] for event in events]
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    assert (kinds[0], kinds[-2:], code) == ("QuestionAsked", ["AnswerGiven", "RunStopped"], 0)
    assert events[0]["payload"]["policy"]["is_demonstration"] is True
    masks = [mask for event in events for mask in event["payload"].get("masks", ())]
    assert masks
    assert masks[0]["area_mm2"] is None, "a JPEG says no spacing, so there are no millimetres"
    # Both lungs of this film are a fifth to a half of it.
    pixels = series.pixel.rows * series.pixel.columns
    assert 0.2 < masks[0]["area_px"] / pixels < 0.5


def test_a_run_that_stops_without_an_answer_ends_with_1(clinic: Clinic, capsys: Any) -> None:
    series = clinic.ct()
    failing = threading.Thread(target=_stop_the_first, args=(clinic,))
    failing.start()
    code, out, _ = serpens("ask", series.id, "Is it there?", capsys=capsys)
    failing.join(30)
    assert code == 1
    assert "RunStopped: failed" in out


def _stop_the_first(clinic: Clinic) -> None:
    class Broken(ScriptedPolicy):
        def speak(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("broken")

    runner = clinic.runner(Broken())
    while not runner.work_one():
        continue


def test_without_a_runner_it_says_so_and_leaves_nothing_to_be_worked_off(clinic: Clinic, capsys: Any) -> None:
    series = clinic.ct()
    capsys.readouterr()
    code, out, err = serpens("ask", series.id, "Is it there?", "--patience-s", "0.3", "--json", capsys=capsys)
    assert (code, [line for line in out.splitlines() if line.startswith("{")]) == (2, [])
    assert json.loads(err.splitlines()[-1])["error"]["code"] == "no_runner"
    (run,) = runs.runs_of_series(clinic.actor, series.id, store=clinic.store)
    assert run.cancel_requested


def test_a_runner_that_went_silent_is_not_waited_for_for_ever(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    series = clinic.ct()
    short = RunLimits(seconds=0.5)
    monkeypatch.setattr(runs, "RunLimits", lambda: short)
    claiming = {"owner": "silent", "lease_s": 60, "store": clinic.store, "clock": clinic.clock}
    threading.Timer(0.2, lambda: runs.claim_run(**claiming)).start()
    with pytest.raises(asking.NoRunner):
        list(
            asking.ask(
                clinic.actor, series.id, "Is it there?", frame_index=0, patience_s=1.0, store=clinic.store,
                clock=clinic.clock,
            )
        )  # fmt: skip
    (run,) = runs.runs_of_series(clinic.actor, series.id, store=clinic.store)
    assert (run.state, run.cancel_requested) == (RunState.RUNNING, True)


def test_an_unknown_series_ends_with_2(clinic: Clinic, capsys: Any) -> None:
    code, _, err = serpens("ask", "nowhere", "Is it there?", capsys=capsys)
    assert code == 2
    assert "not_found" in err
