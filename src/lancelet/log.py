"""Where messages go, under pylance's name for the module."""

from __future__ import annotations

import logging
import os
from typing import Final

ENV_NAME_PYLANCE_LOGGING_LEVEL: Final = "LANCE_LOG"
"""The environment variable with the level: `debug`, or a list with levels of modules."""

_FORMAT: Final = "%(asctime)s %(name)s [%(levelname)s] %(filename)s:%(lineno)d : %(message)s"


def get_python_log_level(rust_log_level: str) -> str:
    """Return the level of Python that comes nearest to one of Rust.

    >>> get_python_log_level("trace"), get_python_log_level("warn")
    ('DEBUG', 'warn')
    """
    return "DEBUG" if rust_log_level.lower() == "trace" else rust_log_level


def get_log_level() -> str:
    """Return the level that the environment asks for, by default INFO."""
    parts = os.environ.get(ENV_NAME_PYLANCE_LOGGING_LEVEL, "").upper().split(",")
    general = [part for part in parts if part and "=" not in part]
    return get_python_log_level(general[0]) if general else "INFO"


LOGGER: Final = logging.getLogger("pylance")
"""Takes the messages of programs that were written for pylance."""
LOGGER.setLevel(get_log_level())


def set_logger(
    file_path: str | None = "pylance.log",
    name: str = "pylance",
    level: int = logging.INFO,
    format_string: str | None = None,
    log_handler: logging.Handler | None = None,
) -> None:
    """Send messages of a logger to a file, or to a handler."""
    handler = log_handler or logging.FileHandler(file_path or "pylance.log")
    handler.setLevel(level)
    handler.setFormatter(logging.Formatter(format_string or _FORMAT))
    logger = logging.getLogger(name)
    logger.setLevel(level)
    logger.addHandler(handler)
