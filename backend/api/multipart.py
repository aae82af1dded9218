"""Forms whose files are read as they come: no part is ever whole in memory or in a temporary file.

The parser and whatever its callbacks do (hashing, writing) run on a worker's thread, a mebibyte at a time, so the
event loop stays free; reading goes on when that piece is dealt with, so a fast sender waits for a slow disk.
"""

from typing import Protocol

from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.concurrency import run_in_threadpool

from backend.domain.errors import InvalidRequest
from backend.settings import MIB

FEED_BYTES = MIB
MAX_FIELDS = 50
MAX_FIELD_BYTES = 64 * 1024


class FormSink(Protocol):
    """Takes a form apart from front to back; called on one thread at a time."""

    def take_field(self, name: str, value: str) -> None:
        """A plain field."""
        ...

    def open_file(self, name: str) -> None:
        """A file begins; `name` is the sender's."""
        ...

    def write(self, data: bytes) -> object:
        """Bytes of the open file."""
        ...

    def close_file(self) -> None:
        """The open file is complete."""
        ...


async def read_form(request: Request, sink: FormSink) -> None:
    """Read a multipart form into a sink. What the sink raises ends the reading.

    Raises:
        InvalidRequest: If the body is no multipart form, is cut off, or has too many or too long fields.
    """
    reader = FormReader(_boundary(request.headers.get("content-type", "")), sink)
    waiting: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        waiting.append(chunk)
        size += len(chunk)
        if size >= FEED_BYTES:
            await run_in_threadpool(reader.feed, waiting)
            waiting, size = [], 0
    await run_in_threadpool(reader.finish, waiting)


def _boundary(content_type: str) -> bytes:
    kind, options = parse_options_header(content_type)
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not boundary:
        raise InvalidRequest("the body must be multipart/form-data with a boundary")
    return boundary


class FormReader:
    """python-multipart's parser, its callbacks brought into the order of a `FormSink`."""

    def __init__(self, boundary: bytes, sink: FormSink) -> None:
        self._sink = sink
        self._header_name, self._header_value = bytearray(), bytearray()
        self._disposition = b""
        self._field: str | None = None
        self._value = bytearray()
        self._fields = 0
        self._in_file = False
        self._has_ended = False
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._part_begins,
                    "on_header_field": lambda data, start, end: self._header_name.extend(data[start:end]),
                    "on_header_value": lambda data, start, end: self._header_value.extend(data[start:end]),
                    "on_header_end": self._header_ends,
                    "on_headers_finished": self._headers_end,
                    "on_part_data": self._part_data,
                    "on_part_end": self._part_ends,
                    "on_end": self._form_ends,
                },
            )
        except FormParserError as error:
            raise InvalidRequest("the form's boundary cannot be used") from error

    def feed(self, chunks: list[bytes]) -> None:
        """Read on. Raises `InvalidRequest` for what is no form, and whatever the sink raises."""
        try:
            for chunk in chunks:
                self._parser.write(chunk)
        except FormParserError as error:
            raise InvalidRequest("the body is no well-formed multipart form") from error

    def finish(self, chunks: list[bytes]) -> None:
        """Read the rest. Raises `InvalidRequest` if the form has no end."""
        self.feed(chunks)
        if not self._has_ended:
            raise InvalidRequest("the form ends before its last boundary")

    def _part_begins(self) -> None:
        self._disposition = b""
        self._field, self._in_file = None, False
        self._value.clear()

    def _header_ends(self) -> None:
        if bytes(self._header_name).lower() == b"content-disposition":
            self._disposition = bytes(self._header_value)
        self._header_name.clear()
        self._header_value.clear()

    def _headers_end(self) -> None:
        _, options = parse_options_header(self._disposition)
        if b"name" not in options:
            raise InvalidRequest("a part of the form has no name")
        if b"filename" not in options:
            self._fields += 1
            if self._fields > MAX_FIELDS:
                raise InvalidRequest(f"a form has at most {MAX_FIELDS} fields")
            self._field = _text(options[b"name"])
        elif options[b"filename"]:  # a browser sends an empty name where no file was picked
            self._in_file = True
            self._sink.open_file(_text(options[b"filename"]))

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._in_file:
            self._sink.write(data[start:end])
        elif self._field is not None:
            if len(self._value) + end - start > MAX_FIELD_BYTES:
                raise InvalidRequest(f"a field of the form has at most {MAX_FIELD_BYTES} bytes")
            self._value.extend(data[start:end])

    def _part_ends(self) -> None:
        if self._in_file:
            self._sink.close_file()
        elif self._field is not None:
            self._sink.take_field(self._field, _text(bytes(self._value)))

    def _form_ends(self) -> None:
        self._has_ended = True


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")
