"""`serpens doctor`: which bodies are in use, what is wrong, and the mend. It looks, and changes nothing."""

import importlib.util
import os
import platform
import re
import shutil
import socket
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from backend.domain.errors import Misconfigured, PlatformError
from backend.domain.segmenter import SegmenterUnavailable
from backend.settings import GIB, Settings

LEAST_FREE_BYTES = 2 * GIB
PROBE_TIMEOUT_S = 3.0

OK, ABSENT, PROBLEM = "ok", "absent", "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    Attributes:
        name: What was looked at.
        state: "ok", "absent" (not there, and nothing is wrong with that) or "problem".
        body: The body in use, or "none".
        mend: What to do about a problem; "" where there is none.
    """

    name: str
    state: str
    body: str
    detail: str = ""
    mend: str = ""


def examine(settings: Settings) -> dict[str, Any]:
    """Look at everything, in a few seconds at most.

    Returns:
        {"ok": bool, "version": str, "findings": [{"name", "state", "body", "detail", "mend"}]}
    """
    looks: tuple[Callable[[Settings], Finding], ...] = (
        _python,
        _database,
        _broker,
        _blobs,
        _disk,
        _address,
        _bundle,
        _policy,
        _segmenter,
        _trainer,
        _accelerator,
        _torch,
    )
    findings = [look(settings) for look in looks]
    return {
        "ok": all(finding.state != PROBLEM for finding in findings),
        "version": version("serpens"),
        "findings": [asdict(finding) for finding in findings],
    }


def as_text(report: dict[str, Any]) -> str:
    """The report for people."""
    lines = [f"Serpens {report['version']}. Research use, not for diagnosis."]
    for finding in report["findings"]:
        mark = {OK: " ok ", ABSENT: " -- ", PROBLEM: "!!  "}[finding["state"]]
        detail = f" ({finding['detail']})" if finding["detail"] else ""
        lines.append(f"{mark} {finding['name']:<12} {finding['body']}{detail}")
        if finding["mend"]:
            lines.append(f"{'':<18}mend: {finding['mend']}")
    lines.append("nothing is wrong" if report["ok"] else "something is wrong: see the lines marked !!")
    return "\n".join(lines)


def _python(_settings: Settings) -> Finding:
    return Finding("python", OK, f"{platform.python_implementation()} {platform.python_version()}")


def _database(settings: Settings) -> Finding:
    from sqlalchemy import make_url

    from backend.store import schema
    from backend.store.repository import open_engine

    url = make_url(settings.database)
    body = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}.get(url.get_backend_name(), url.get_backend_name())
    if url.get_backend_name() == "sqlite" and not (url.database and Path(url.database).exists()):
        return Finding("database", ABSENT, body, "not made yet; `serpens run` and `serpens migrate` make it")
    try:
        state = schema.schema_state(settings.database)
    except PlatformError as error:
        return Finding("database", PROBLEM, body, error.message, "start the database or correct SERPENS_DATABASE_URL")
    engine = open_engine(settings.database)
    server = ".".join(str(part) for part in _server_version(engine))
    engine.dispose()
    detail = f"revision {state.current or 'none'}"
    if not state.is_current:
        return Finding(
            "database",
            PROBLEM,
            f"{body} {server}",
            f"{detail}, this version needs {state.head}",
            "run `serpens migrate`",
        )
    return Finding("database", OK, f"{body} {server}", detail)


def _server_version(engine: Any) -> tuple[Any, ...]:
    with engine.connect() as connection:
        return tuple(connection.dialect.server_version_info or ())


def _broker(settings: Settings) -> Finding:
    from backend.queue import embedded_file, is_embedded

    if is_embedded(settings.broker):
        folder = embedded_file(settings.broker).parent
        if folder.exists() and not os.access(folder, os.W_OK):
            return Finding("broker", PROBLEM, "embedded", "its folder cannot be written", "give this user the folder")
        return Finding("broker", OK, "embedded (SQLite)", "a lost message costs at most the reaper's 10 s")
    parts = urlsplit(settings.broker)
    place = f"{parts.hostname}:{parts.port or 6379}"
    try:
        _ping_redis(settings.broker)
    except Misconfigured as error:
        return Finding("broker", PROBLEM, "Redis", f"{place}: {error}", "start Redis or correct SERPENS_BROKER_URL")
    return Finding("broker", OK, "Redis", place)


def _ping_redis(url: str) -> None:
    from redis import Redis
    from redis.exceptions import RedisError

    try:
        with Redis.from_url(url, socket_connect_timeout=PROBE_TIMEOUT_S, socket_timeout=PROBE_TIMEOUT_S) as client:
            client.ping()
    except (RedisError, ValueError) as error:
        raise Misconfigured(type(error).__name__) from error


def _blobs(settings: Settings) -> Finding:
    folder = _nearest_existing(settings.blobs)
    if not os.access(folder, os.W_OK):
        return Finding("blobs", PROBLEM, "directory", "cannot be written", "give this user the folder of SERPENS_HOME")
    return Finding("blobs", OK, "directory", "in SERPENS_HOME")


def _disk(settings: Settings) -> Finding:
    free = shutil.disk_usage(_nearest_existing(settings.home)).free
    body = f"{free / GIB:.1f} GiB free"
    if free < LEAST_FREE_BYTES:
        return Finding("disk", PROBLEM, body, mend="free some space, or set SERPENS_HOME to another disk")
    return Finding("disk", OK, body)


def _nearest_existing(path: Path) -> Path:
    path = path.resolve()
    return next(parent for parent in (path, *path.parents) if parent.exists())


def _address(settings: Settings) -> Finding:
    from backend.services.accounts import require_safe_demo

    body = f"{settings.host}, port {settings.port}" + (", demo mode" if settings.demo else "")
    try:
        require_safe_demo(settings)
    except Misconfigured as error:
        return Finding("web", PROBLEM, body, error.message, "set SERPENS_HOST=127.0.0.1 or SERPENS_DEMO=false")
    return Finding("web", OK, body, "answers now" if _is_listening(settings) else "not running now")


def _is_listening(settings: Settings) -> bool:
    try:
        socket.create_connection((settings.host.strip("[]"), settings.port or 1), timeout=1).close()
    except OSError:
        return False
    return True


def _bundle(_settings: Settings) -> Finding:
    spec = importlib.util.find_spec("app")
    if spec is None or spec.origin is None:
        return Finding("bundle", PROBLEM, "none", "the folder `app` is not installed", "run `make setup`")
    folder = Path(spec.origin).parent / "static" / "viewer"
    missing = [name for name in ("viewer.js", "shell.js") if not (folder / name).is_file()]
    if missing:
        return Finding("bundle", PROBLEM, "none", f"{', '.join(missing)} not built", "run `.ci/bundle`")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Finding("bundle", OK, "built", f"{size / 2**20:.1f} MiB; Node is needed to build it and not to run")


def _policy(settings: Settings) -> Finding:
    if settings.policy_url is None:
        return Finding("policy", OK, "ScriptedPolicy", "demonstration policy: rules, not a model")
    body = settings.policy_model or "no model named"
    mend = "start the server, or mend SERPENS_POLICY_URL, SERPENS_POLICY_MODEL and SERPENS_POLICY_API_KEY"
    key = settings.policy_api_key.get_secret_value()
    try:
        answer = httpx.get(
            f"{settings.policy_url.rstrip('/')}/models",
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=PROBE_TIMEOUT_S,
        )
        served = [model["id"] for model in answer.raise_for_status().json()["data"]]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as error:
        return Finding("policy", PROBLEM, body, f"its server does not answer ({type(error).__name__})", mend)
    if settings.policy_model not in served:
        return Finding("policy", PROBLEM, body, f"its server serves {len(served)} models and not this one", mend)
    return Finding("policy", OK, body, "served over the OpenAI protocol")


def _segmenter(settings: Settings) -> Finding:
    if settings.segmenter_token is None and not settings.segmenter_secret_path.exists():
        return Finding("segmenter", ABSENT, "none", "not started yet")
    from backend.agent.segmenter_client import HttpSegmenter

    try:
        with HttpSegmenter(settings.segmenter, settings.segmenter_secret(), timeout_s=PROBE_TIMEOUT_S) as segmenter:
            bodies = segmenter.bodies()
    except PlatformError as error:
        if settings.segmenter_url is None and isinstance(error, SegmenterUnavailable):
            return Finding("segmenter", ABSENT, "none", "not running now")
        return Finding("segmenter", PROBLEM, "none", error.code, "check SERPENS_SEGMENTER_URL and _TOKEN")
    return Finding("segmenter", OK, ", ".join(f"{body.name} {body.version}" for body in bodies))


def _trainer(_settings: Settings) -> Finding:
    return Finding("trainer", ABSENT, "none", "none in this version")


def _accelerator(_settings: Settings) -> Finding:
    program = shutil.which("nvidia-smi")
    if program is None:
        return Finding("accelerator", ABSENT, "none", "CPU only; nothing in this version needs more")
    query = [program, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        detail = f"nvidia-smi is there and fails ({type(error).__name__}); CPU only"
        return Finding("accelerator", ABSENT, "none", detail)
    return Finding("accelerator", OK, "; ".join(answer.stdout.strip().splitlines()))


def _torch(_settings: Settings) -> Finding:
    """Read from the installed files: importing torch takes seconds and no process of this folder needs it."""
    try:
        installed = distribution("torch")
    except PackageNotFoundError:
        return Finding("torch", PROBLEM, "none", mend="run `make setup`")
    built_for = re.search(
        r"^cuda\b[^=\n]*=\s*'([^']+)'",
        Path(str(installed.locate_file("torch/version.py"))).read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    build = f"CUDA {built_for[1]} build" if built_for else "CPU build"
    return Finding("torch", OK, installed.version, build)
