"""`serpens doctor` says what is in use, is honest about what is not there, and names the mend."""

import json
import re
import sys

import pytest
from pydantic import SecretStr

from backend import cli, doctor
from backend.settings import Settings
from backend.store.schema import upgrade


def findings(settings: Settings) -> dict[str, dict]:
    return {finding["name"]: finding for finding in doctor.examine(settings)["findings"]}


@pytest.fixture
def migrated(settings):
    """A home with a database at the newest revision."""
    upgrade(settings.database)
    return settings


def test_a_set_up_home_has_a_database_with_its_version_and_revision(migrated):
    database = findings(migrated)["database"]
    assert database["state"] == "ok"
    assert database["body"].startswith("SQLite 3.")
    assert database["detail"].startswith("revision 0")


@pytest.mark.needs("postgres")
def test_postgresql_is_named_with_its_version(postgres_url, tmp_path):
    upgrade(postgres_url)
    database = findings(Settings(_env_file=None, home=tmp_path, database_url=postgres_url))["database"]
    assert database["state"] == "ok"
    assert database["body"].startswith("PostgreSQL 1")


def test_before_the_first_start_nothing_is_wrong_and_nothing_is_made(settings):
    assert findings(settings)["database"]["state"] == "absent"
    assert list(settings.home.iterdir()) == []


def test_an_empty_database_is_a_problem_with_its_mend(settings):
    (settings.home / "serpens.db").touch()
    database = findings(settings)["database"]
    assert (database["state"], database["mend"]) == ("problem", "run `serpens migrate`")


def test_a_database_that_does_not_answer_is_told_without_its_password(settings):
    url = "postgresql+psycopg://serpens:geheim@127.0.0.1:1/serpens?connect_timeout=2"
    database = findings(settings.model_copy(update={"database_url": url}))["database"]
    assert database["state"] == "problem"
    assert "SERPENS_DATABASE_URL" in database["mend"]
    assert "geheim" not in json.dumps(database)


def test_redis_that_is_away_is_a_problem_with_its_mend(settings):
    broker = findings(settings.model_copy(update={"broker_url": "redis://:geheim@127.0.0.1:1/0"}))["broker"]
    assert (broker["state"], broker["body"]) == ("problem", "Redis")
    assert "SERPENS_BROKER_URL" in broker["mend"]
    assert "geheim" not in json.dumps(broker)


@pytest.mark.needs("redis")
def test_redis_that_answers_is_in_use(settings, redis_url):
    assert findings(settings.model_copy(update={"broker_url": redis_url}))["broker"]["state"] == "ok"


def test_what_this_version_does_not_have_is_said_to_be_absent(settings):
    report = findings(settings)
    for name in ("segmenter", "trainer"):
        assert (report[name]["state"], report[name]["body"]) == ("absent", "none")


def test_the_demonstration_policy_says_what_it_is(settings):
    policy = findings(settings)["policy"]
    assert (policy["state"], policy["body"]) == ("ok", "ScriptedPolicy")
    assert policy["detail"] == "demonstration policy: rules, not a model"


def test_a_model_server_that_does_not_answer_is_a_problem_told_without_its_key(settings):
    served = {"policy_url": "http://127.0.0.1:1/v1", "policy_model": "m", "policy_api_key": SecretStr("geheim")}
    policy = findings(settings.model_copy(update=served))["policy"]
    assert (policy["state"], policy["body"]) == ("problem", "m")
    assert "SERPENS_POLICY_URL" in policy["mend"]
    assert "geheim" not in json.dumps(policy)


def test_the_torch_build_is_told_without_importing_torch(settings):
    already = "torch" in sys.modules
    torch = findings(settings)["torch"]
    assert torch["state"] == "ok"
    assert torch["detail"].endswith(" build")
    assert ("torch" in sys.modules) == already


def test_demo_mode_beyond_loopback_is_a_problem(settings):
    web = findings(settings.model_copy(update={"demo": True, "host": "0.0.0.0"}))["web"]
    assert web["state"] == "problem"
    assert "SERPENS_HOST=127.0.0.1" in web["mend"]


def test_a_full_disk_is_a_problem(settings, monkeypatch):
    monkeypatch.setattr(doctor, "LEAST_FREE_BYTES", 2**80)
    assert findings(settings)["disk"]["state"] == "problem"


def test_the_command_ends_with_1_when_something_is_wrong(settings, monkeypatch, capsys):
    (settings.home / "serpens.db").touch()
    monkeypatch.setenv("SERPENS_HOME", str(settings.home))
    monkeypatch.setattr(sys, "argv", ["serpens", "doctor", "--json"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert {"name", "state", "body", "detail", "mend"} == set(report["findings"][0])


def test_the_report_for_people_marks_what_is_wrong(settings):
    (settings.home / "serpens.db").touch()
    text = doctor.as_text(doctor.examine(settings))
    assert re.search(r"(?m)^!! +database", text)
    assert "mend: run `serpens migrate`" in text
    assert text.endswith("something is wrong: see the lines marked !!")
