"""Tell the web process at once that a run has news, and what it is streaming.

A hint and never the truth: events are rows, and whoever listens also polls. On PostgreSQL it is NOTIFY; on SQLite a
datagram to a Unix socket in `home`. A preview that is too long for the wire or meets no listener is dropped.
"""

import hashlib
import json
import os
import socket
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import structlog

log = structlog.get_logger(__name__)

CHANNEL = "serpens_runs"
# PostgreSQL refuses a payload of 8,000 bytes or more; a datagram could hold more, but one limit is enough.
MAX_BYTES = 7_900


@dataclass(frozen=True, slots=True)
class News:
    """Something happened in a run. `preview` is the text streaming now; None says that events were stored."""

    run_id: str
    preview: str | None = None

    def encode(self) -> bytes:
        """As JSON."""
        return json.dumps({"run_id": self.run_id, "preview": self.preview}, separators=(",", ":")).encode()

    @staticmethod
    def decode(data: bytes | str) -> "News | None":
        """From JSON; None for what is no news of ours."""
        try:
            fields = json.loads(data)
            return News(str(fields["run_id"]), None if fields["preview"] is None else str(fields["preview"]))
        except (ValueError, KeyError, TypeError):
            return None


class Notifier(Protocol):
    """Sends news from a runner and hears them in the web process."""

    def send(self, news: News) -> None:
        """Send; never waits for a listener and never fails for want of one."""
        ...

    def listen(self, heard: Callable[[News], None]) -> Callable[[], None]:
        """Call `heard` in a thread of its own for all news; returns how to stop."""
        ...


class SocketNotifier:
    """Datagrams to a Unix socket that only this user can reach; where there are none, polling serves alone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_available = hasattr(socket, "AF_UNIX")
        self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if self._is_available else None
        if self._sender:
            self._sender.setblocking(False)

    def send(self, news: News) -> None:
        """Send to the listener, if there is one and it keeps up."""
        data = news.encode()
        if self._sender is None or len(data) > MAX_BYTES:
            return
        try:
            self._sender.sendto(data, str(self._path))
        except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
            return  # no web process listens now, or it is behind; the rows say the same

    def listen(self, heard: Callable[[News], None]) -> Callable[[], None]:
        """Listen on the socket; the newest listener has it."""
        if not self._is_available:
            return lambda: None
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        receiver.bind(str(self._path))
        self._path.chmod(0o600)
        receiver.settimeout(0.5)
        stopping = threading.Event()

        def receive() -> None:
            while not stopping.is_set():
                try:
                    data = receiver.recv(MAX_BYTES + 1)
                except TimeoutError:
                    continue
                if news := News.decode(data):
                    heard(news)
            receiver.close()

        thread = threading.Thread(target=receive, name="run-news", daemon=True)
        thread.start()

        def stop() -> None:
            stopping.set()
            thread.join()

        return stop


class PostgresNotifier:
    """NOTIFY and LISTEN on a connection of its own."""

    def __init__(self, database_url: str) -> None:
        self._dsn = database_url.replace("postgresql+psycopg://", "postgresql://", 1)
        self._lock = threading.Lock()
        self._connection: object | None = None

    def send(self, news: News) -> None:
        """NOTIFY; a lost connection is opened anew at the next news."""
        import psycopg

        data = news.encode()
        if len(data) > MAX_BYTES:
            return
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = psycopg.connect(self._dsn, autocommit=True)
                assert isinstance(self._connection, psycopg.Connection)
                self._connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, data.decode()))
            except psycopg.OperationalError:
                self._connection = None
                log.warning("run_news_not_sent", run_id=news.run_id)

    def listen(self, heard: Callable[[News], None]) -> Callable[[], None]:
        """LISTEN; after a lost connection it tries again every second, and polling serves meanwhile."""
        import psycopg

        stopping = threading.Event()

        def receive() -> None:
            while not stopping.is_set():
                try:
                    with psycopg.connect(self._dsn, autocommit=True) as connection:
                        connection.execute(f"LISTEN {CHANNEL}")
                        while not stopping.is_set():
                            for notice in connection.notifies(timeout=0.5):
                                if news := News.decode(notice.payload):
                                    heard(news)
                except psycopg.OperationalError:
                    log.warning("run_news_connection_lost")
                    stopping.wait(1.0)

        thread = threading.Thread(target=receive, name="run-news", daemon=True)
        thread.start()

        def stop() -> None:
            stopping.set()
            thread.join()

        return stop


def open_notifier(database_url: str, home: Path) -> Notifier:
    """The notifier of this database."""
    if database_url.startswith("postgresql"):
        return PostgresNotifier(database_url)
    return SocketNotifier(socket_path(home))


def socket_path(home: Path) -> Path:
    """Where the socket lies. A Unix socket's path has about 100 bytes, so a deep `home` gets one by its hash in the
    temporary folder of the user.
    """
    wanted = home.resolve() / "news.sock"
    if len(os.fsencode(wanted)) < 100:
        return wanted
    name = hashlib.sha256(os.fsencode(wanted)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"serpens-{os.getuid()}-{name}.sock"
