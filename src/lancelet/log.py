"""Logging of events and messages. Mirrors the pylance module of this name.

    LANCE_LOG=info LANCE_LOG_FILE=logs/lance.log python program.py

This writes a line for each event of datasets and files to the file and creates its folder. Without
`LANCE_LOG_FILE`, events are written to stderr.

    [2026-03-01T12:00:00Z INFO  lance::dataset_events] event="loading" uri="t.lance"
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Final, TextIO

from lancelet import surroundings
from lancelet.io.trace_events import EVENT_SINKS, TraceEvent

ENV_NAME_PYLANCE_LOGGING_LEVEL: Final = "LANCE_LOG"
"""The environment variable of the level: `debug`, or a list of levels per module."""

_FORMAT: Final = "%(asctime)s %(name)s [%(levelname)s] %(filename)s:%(lineno)d : %(message)s"


LOG_FILE_VARIABLE: Final = "LANCE_LOG_FILE"
"""The environment variable of the event log file."""

_SHOWS_EVENTS: Final = frozenset({"INFO", "DEBUG", "TRACE"})


def get_python_log_level(rust_log_level: str) -> str:
    """Return the closest Python level of a Rust log level.

    >>> get_python_log_level("trace"), get_python_log_level("warn")
    ('DEBUG', 'warn')
    """
    return "DEBUG" if rust_log_level.lower() == "trace" else rust_log_level


def get_log_level() -> str:
    """Return the level set by the environment, by default INFO."""
    parts = os.environ.get(ENV_NAME_PYLANCE_LOGGING_LEVEL, "").upper().split(",")
    general = [part for part in parts if part and "=" not in part]
    return get_python_log_level(general[0]) if general else "INFO"


LOGGER: Final = logging.getLogger("pylance")
"""The logger of programs that were written for pylance."""
LOGGER.setLevel(get_log_level())


def set_logger(
    file_path: str | None = "pylance.log",
    name: str = "pylance",
    level: int = logging.INFO,
    format_string: str | None = None,
    log_handler: logging.Handler | None = None,
) -> None:
    """Send the messages of a logger to a file, or to a handler."""
    handler = log_handler or logging.FileHandler(file_path or "pylance.log")
    handler.setLevel(level)
    handler.setFormatter(logging.Formatter(format_string or _FORMAT))
    logger = logging.getLogger(name)
    logger.setLevel(level)
    logger.addHandler(handler)


def log_by_environment() -> None:
    """Write events to the destination set by the environment, if any. Called once per process."""
    named = os.environ.get(LOG_FILE_VARIABLE)
    if named:
        path = Path(named)
        path.parent.mkdir(parents=True, exist_ok=True)
        stream: TextIO = path.open("a", encoding="utf-8", buffering=1)
    elif os.environ.get(ENV_NAME_PYLANCE_LOGGING_LEVEL):
        stream = sys.stderr
    else:
        return
    if get_log_level() in _SHOWS_EVENTS:
        EVENT_SINKS.add(lambda event: print(_line_of(event), file=stream))


def _line_of(event: TraceEvent) -> str:
    now = surroundings.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    facts = " ".join(f'{name}="{value}"' for name, value in event.args.items())
    return f"[{now} INFO  {event.target}] {facts}"
