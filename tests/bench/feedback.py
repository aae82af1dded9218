"""Judgements over HTTP into PostgreSQL, one request each, at a fixed rate whether or not earlier ones are answered.

An open loop: a request's time runs from the moment it was due, so a server that falls behind is seen to. Afterwards
every acknowledged judgement is looked for in the database.
"""

import asyncio
import json
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from backend.services import reviews
from backend.services.context import utc_now
from backend.store.repository import new_id
from tests import services
from tests.bench._web import clinic_with_web
from tests.bench.report import Metric, Spread, percentile
from tests.people import open_session

RATE_PER_S = 200
SECONDS = 10
WARM_UP = 100
CONNECTIONS = 64


def run() -> dict[str, Metric]:
    """Milliseconds of a judgement, 99 of 100, at 200 a second."""
    with (
        tempfile.TemporaryDirectory(prefix="serpens-bench-") as folder,
        services.postgres() as server,
        clinic_with_web(Path(folder), database_url=f"{server}/postgres") as (clinic, url),
    ):
        judged = clinic.answered(clinic.ct())
        token, _ = open_session(clinic.store, clinic.actor, utc_now())
        load = Load(url, f"/api/runs/{judged.id}/feedback", token)
        asyncio.run(load.run())
        stored = {one.id for one in reviews.feedback_of_run(clinic.actor, judged.id, store=clinic.store)}
    lost = set(load.acknowledged) - stored
    if lost or load.refused:
        raise RuntimeError(f"{len(lost)} acknowledged judgements are lost, {load.refused} were refused")
    ms = [1000 * s for s in load.seconds]
    return {
        "p99_at_200_per_s_ms": Metric(
            percentile(ms, 99), "ms", len(ms), Spread("min-max", min(ms), max(ms)), target=50
        ),
        "p50_at_200_per_s_ms": Metric(percentile(ms, 50), "ms", len(ms), Spread.of(ms)),
        "lost": Metric(float(len(lost)), "judgements", len(ms), target=0),
    }


@dataclass
class Load:
    """The requests, and what came of them."""

    url: str
    path: str
    token: str
    seconds: list[float] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    refused: int = 0

    async def run(self) -> None:
        """A warm-up that does not count, then `RATE_PER_S` for `SECONDS`."""
        free: asyncio.Queue[Connection] = asyncio.Queue()
        address = urlsplit(self.url)
        for _ in range(CONNECTIONS):
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            free.put_nowait(Connection(reader, writer, f"{address.hostname}:{address.port}", self.token))
        for _ in range(WARM_UP):
            await self._judge(free, time.perf_counter())
        self.seconds.clear()
        begun = time.perf_counter() + 0.1
        tasks = []
        for place in range(RATE_PER_S * SECONDS):
            due = begun + place / RATE_PER_S
            if (wait_s := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait_s)
            tasks.append(asyncio.create_task(self._judge(free, due)))
        await asyncio.gather(*tasks)

    async def _judge(self, free: "asyncio.Queue[Connection]", due: float) -> None:
        body = {"target": "step", "sequence": 4, "verdict": "accept", "seconds_spent": 1.5, "request_key": new_id()}
        connection = await free.get()
        status, answer = await connection.post(self.path, json.dumps(body).encode())
        free.put_nowait(connection)
        self.seconds.append(time.perf_counter() - due)
        if status == 201:
            self.acknowledged.append(json.loads(answer)["id"])
        else:
            self.refused += 1


@dataclass(frozen=True, slots=True)
class Connection:
    """One kept-alive HTTP/1.1 connection: a full client would take as much of the machine as the server."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    host: str
    token: str

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer."""
        self.writer.write(
            f"POST {path} HTTP/1.1\r\nHost: {self.host}\r\nAuthorization: Bearer {self.token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(head.partition("content-length:")[2].split("\r\n")[0])
        return int(head.split()[1]), await self.reader.readexactly(length)
