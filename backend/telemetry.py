"""Logs: a fixed event name and our own identifiers as fields; never a patient, a file name or a UID."""

import logging
import sys

import structlog


def configure_logging(*, as_json: bool) -> None:
    """Send structlog and the standard library's warnings to stderr in one form."""
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    # These write what files hold (tags, values, paths) or every request's address: a patient could be in either.
    for name in ("pydicom", "nibabel", "nibabel.global", "highdicom", "PIL", "httpx", "httpx2", "uvicorn.access"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # It tells of its plug-ins at every start; `schema_upgraded` says what matters.
    logging.getLogger("alembic").setLevel(logging.WARNING)
