"""A temporary PostgreSQL server for tests, on a socket in a temporary folder.

Uses the PostgreSQL of the system, or of the package `pgserver`; see `find_programs`.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from lancelet.errors import UnsupportedError

_SUPERUSER: Final = "tester"
_SERVER_USERS: Final = ("postgres", "nobody")
_PUBLIC_FOLDERS: Final = ("/tmp", "/var/tmp", "/dev/shm")


def find_programs() -> Path | None:
    """Return the folder of `initdb` and `pg_ctl`, or None if no server is installed."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    package = importlib.util.find_spec("pgserver")
    if package is None or package.origin is None:
        return None
    folder = Path(package.origin).parent / "pginstall/bin"
    return folder if folder.is_dir() else None


@contextmanager
def postgres_server(programs: Path) -> Iterator[str]:
    """Run a server and yield the connection string of its database."""
    owner = _owner()
    folder = tempfile.mkdtemp(prefix="pg", dir=None if owner is None else _temporary_folder())
    data = Path(folder, "data")
    if owner is not None:
        shutil.chown(folder, owner)
    try:
        if owner is not None and not _is_open_to_others(programs):
            programs = _copied(programs, Path(folder))
        _run(programs / "initdb", "-D", data, "-U", _SUPERUSER, "-A", "trust", "--no-sync")
        options = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off"
        log = Path(folder, "log")
        _run(programs / "pg_ctl", "-D", data, "-l", log, "-o", options, "-w", "start")
        try:
            yield f"postgresql:///postgres?host={folder}&user={_SUPERUSER}"
        finally:
            _run(programs / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder)


def _temporary_folder() -> str:
    """Return a folder for temporary files that the server user can access.

    Raises:
        UnsupportedError: If no such folder exists, as when the folder of this process is private.
    """
    for folder in (tempfile.gettempdir(), *_PUBLIC_FOLDERS):
        if os.access(folder, os.W_OK) and _is_open_to_others(Path(folder).resolve()):
            return folder
    raise UnsupportedError(
        "no folder for temporary files can be entered by the user of the PostgreSQL server; set "
        "TMPDIR to one of mode 0755 or 1777",
        found=tempfile.gettempdir(),
    )


def _is_open_to_others(folder: Path) -> bool:
    """Return whether any user can access a folder; home folders are often private."""
    return all(each.stat().st_mode & stat.S_IXOTH for each in (folder, *folder.parents))


def _copied(programs: Path, target: Path) -> Path:
    """Copy the server of `pgserver` and its libraries to a folder that its user can access."""
    package = programs.parents[1]
    for name in (package.name, f"{package.name}.libs"):
        shutil.copytree(package.with_name(name), target / name, ignore=_not_to_run)
    return target / programs.relative_to(package.parent)


_not_to_run: Final = shutil.ignore_patterns("include", "*.py", "*.pyc", "*.a")


def _run(program: Path, *arguments: str | Path) -> None:
    command: Sequence[str] = [str(program), *map(str, arguments)]
    # The server outlives the command and must not inherit its pipes.
    subprocess.run(
        command,
        check=True,
        user=_owner(),
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _owner() -> str | None:
    """Return the server user for tests run by root; PostgreSQL does not run as root."""
    if os.geteuid():
        return None
    users = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in _SERVER_USERS if name in users)
