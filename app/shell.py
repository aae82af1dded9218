"""What Serpens changes in Gradio's own page: our styles and shell first, nothing for installing or sharing the page."""

import re

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEAD = """<link rel="icon" href="/login/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/assets/viewer/shell.css">
<script type="module" src="/assets/viewer/shell.js"></script>"""

# The manifest is asked for without cookies, which the guard refuses; the cards for sharing name other origins.
_DROPPED = re.compile(rb"""<link rel="manifest"[^>]*>|<meta\s+(?:property|name)="(?:og|twitter):[^>]*>""")
_SHARE_FRAME = re.compile(rb"<script>\s*\(\(\) => \{\s*const root = .*?iframeResizer.*?</script>", re.DOTALL)


class ShellPage:
    """Stands before the mounted Gradio and mends its HTML answer; everything else passes as it is.

    The shell begins with the page instead of after Gradio's own start, so the first data are here when Gradio is.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["path"] != "/":
            await self._app(scope, receive, send)
            return
        # An encoded answer could not be mended.
        headers = [(name, value) for name, value in scope["headers"] if name != b"accept-encoding"]
        await self._app({**scope, "headers": headers}, receive, _MendedPage(send).send)


class _MendedPage:
    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message = {}
        self._body = bytearray()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        self._body += message.get("body", b"")
        if message.get("more_body"):
            return
        body = mend(bytes(self._body))
        MutableHeaders(scope=self._start)["content-length"] = str(len(body))
        await self._send(self._start)
        await self._send({"type": "http.response.body", "body": body})


def mend(page: bytes) -> bytes:
    """Gradio's page with our head and without what asks other origins or goes without cookies."""
    return _SHARE_FRAME.sub(b"", _DROPPED.sub(b"", page)).replace(b"<head>", b"<head>\n" + HEAD.encode(), 1)
