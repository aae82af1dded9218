"""The command line: what it prints, its exit codes, and one clear line where something is wrong."""

import json
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from backend import cli
from backend.domain.access import Role
from backend.domain.account import User
from backend.services import accounts
from backend.services.context import utc_now
from backend.settings import Settings
from backend.store.repository import Store, new_id
from backend.store.schema import upgrade


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """A home of its own, and no `.env` of the checkout."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SERPENS_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def serpens(monkeypatch, *arguments: str) -> int:
    """Run the command line in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["serpens", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


@pytest.fixture
def ready(home):
    """A database with the first admin and one project; gives the store."""
    settings = Settings(_env_file=None)
    home.mkdir()
    upgrade(settings.database)
    store = Store(settings.database)
    accounts.ensure_first_admin(store=store, settings=settings, clock=utc_now)
    admin = accounts.actor_named("admin", store=store)
    from backend.services.projects import create_project

    create_project(admin, "Chest", store=store, clock=utc_now)
    yield store
    store.close()


def write_png(path: Path) -> Path:
    from PIL import Image

    Image.new("L", (4, 3), 120).save(path)
    return path


def test_migrate_says_the_revision_and_may_be_repeated(home, monkeypatch, capsys):
    assert serpens(monkeypatch, "migrate") == 0
    first = capsys.readouterr().out
    assert first.startswith("the database is at revision 0")
    assert serpens(monkeypatch, "migrate") == 0
    assert capsys.readouterr().out == first
    assert (home / "serpens.db").exists()


def test_ingest_prints_the_upload_and_ends_with_0_when_all_is_stored(ready, tmp_path, monkeypatch, capsys):
    assert serpens(monkeypatch, "ingest", str(write_png(tmp_path / "a.png")), "--modality", "XC", "--json") == 0
    upload = json.loads(capsys.readouterr().out)
    assert upload["state"] == "done"
    assert upload["counts"]["stored"] == 1
    assert len(upload["study_ids"]) == 1
    assert upload["problems"] == []


def test_ingest_ends_with_1_when_a_file_is_refused_and_the_rest_goes_in(ready, tmp_path, monkeypatch, capsys):
    write_png(tmp_path / "a.png")
    (tmp_path / "b.dcm").write_text("this is no DICOM file")
    assert serpens(monkeypatch, "ingest", str(tmp_path / "a.png"), str(tmp_path / "b.dcm"), "--json") == 1
    upload = json.loads(capsys.readouterr().out)
    assert upload["counts"]["stored"] == 1
    assert [problem["state"] for problem in upload["problems"]] == ["refused"]
    assert upload["problems"][0]["code"]


def test_ingest_ends_with_2_for_a_user_who_is_not_there(ready, tmp_path, monkeypatch, capsys):
    assert serpens(monkeypatch, "ingest", str(write_png(tmp_path / "a.png")), "--as", "nobody") == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == "serpens: not_found: no active user has this name"


def test_ingest_asks_for_the_project_where_there_are_two(ready, tmp_path, monkeypatch, capsys):
    from backend.services.projects import create_project

    create_project(accounts.actor_named("admin", store=ready), "Brain", store=ready, clock=utc_now)
    png = str(write_png(tmp_path / "a.png"))
    assert serpens(monkeypatch, "ingest", png, "--json") == 2
    error = json.loads(capsys.readouterr().err.splitlines()[-1])["error"]
    assert error["code"] == "invalid_request"
    assert "Brain, Chest" in error["message"]
    assert serpens(monkeypatch, "ingest", png, "--project", "Brain") == 0


def test_a_new_password_is_printed_once_and_is_the_right_one(ready, monkeypatch, capsys):
    from backend.services.passwords import is_right

    user = User(new_id(), "cleo", "Cleo", Role.CLINICIAN, True, False, utc_now())
    with ready.transaction() as tx:
        tx.accounts.add_user(user, password_hash="!")

    assert serpens(monkeypatch, "users", "reset-password", "cleo") == 0

    told = capsys.readouterr().out.strip()
    assert told.startswith("cleo signs in with the password ")
    with ready.transaction() as tx:
        stored = tx.accounts.credentials("cleo").password_hash
    assert is_right(told.rpartition(" ")[2], stored)


def test_a_wrong_setting_is_one_line_with_its_name_and_without_its_value(home, monkeypatch, capsys):
    monkeypatch.setenv("SERPENS_PORT", "sesame")
    assert serpens(monkeypatch, "doctor") == 2
    error = capsys.readouterr().err
    assert error.startswith("serpens: misconfigured: SERPENS_PORT: ")
    assert error.count("\n") == 1
    assert "sesame" not in error


def test_help_lists_the_commands_of_other_folders_without_loading_them(home, monkeypatch, capsys):
    already = "gradio" in sys.modules
    assert serpens(monkeypatch, "--help") == 0
    listed = capsys.readouterr().out
    for name in ("run", "web", "worker", "migrate", "doctor", "ingest", "users", "bench"):
        assert f" {name} " in listed
    assert ("gradio" in sys.modules) == already


def test_a_command_whose_folder_is_missing_breaks_no_other(home, monkeypatch, capsys):
    absent = EntryPoint("absent", "not_installed_here.command:command", cli.COMMANDS_GROUP)
    monkeypatch.setattr(cli, "_brought_commands", lambda: {"absent": absent})
    assert serpens(monkeypatch, "migrate") == 0
    assert serpens(monkeypatch, "absent") == 2
    assert "`not_installed_here`, which is not installed" in capsys.readouterr().err


def test_a_command_that_does_not_exist_ends_with_2(home, monkeypatch, capsys):
    assert serpens(monkeypatch, "no-such-command") == 2
    assert "no-such-command" in capsys.readouterr().err


def test_bench_reports_in_the_agreed_form(home, monkeypatch, capsys, tmp_path):
    from tests.bench import command
    from tests.bench.report import Metric

    metrics = {
        "open_ms": Metric.of([30.0, 10.0, 20.0], "ms", target=300.0, peer="other 1.0", peer_samples=[40.0]),
        "rows_per_s": Metric.of([50.0], "1/s", lower_is_better=False, peer="other 1.0", peer_samples=[25.0]),
    }
    module = type("Bench", (), {"run": staticmethod(lambda: metrics)})
    monkeypatch.setattr(command, "bench_names", lambda: ["fake"])
    monkeypatch.setitem(sys.modules, "tests.bench.fake", module)

    assert serpens(monkeypatch, "bench", "fake", "--json", "--out", str(tmp_path / "out")) == 0

    result = json.loads(capsys.readouterr().out)
    assert set(result) == {"bench", "revision", "machine", "metrics"}
    assert result["metrics"]["open_ms"] == {
        "value": 20.0,
        "unit": "ms",
        "runs": 3,
        "spread": {"kind": "min-max", "low": 10.0, "high": 30.0},
        "target": 300.0,
        "peer": "other 1.0",
        "peer_value": 40.0,
        "ratio": 2.0,
    }
    assert result["metrics"]["rows_per_s"]["ratio"] == 2.0
    assert json.loads((tmp_path / "out" / "fake.json").read_text()) == result


def test_an_unknown_bench_is_named_with_those_that_there_are(home, monkeypatch, capsys):
    assert serpens(monkeypatch, "bench", "nothing") == 2
    assert "there is no bench 'nothing'" in capsys.readouterr().err
