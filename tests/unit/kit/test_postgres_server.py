"""The server for tests runs where its programs lie in a folder that only root may enter."""

import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.kit.postgres_server import find_programs, postgres_server

psycopg = pytest.importorskip("psycopg")
PACKAGE = importlib.util.find_spec("pgserver")


@pytest.mark.skipif(PACKAGE is None, reason="pgserver is not installed")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as somebody else")
def test_programs_in_a_private_folder_are_run(tmp_path):
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    package = Path(PACKAGE.origin).parent
    for name in ("pgserver", "pgserver.libs"):
        shutil.copytree(package.with_name(name), private / name)
    programs = private / "pgserver" / "pginstall" / "bin"
    with postgres_server(programs) as dsn, psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.skipif(find_programs() is None, reason="no PostgreSQL is installed")
def test_a_server_runs_where_the_folder_for_temporary_files_is_private(tmp_path, monkeypatch):
    programs = find_programs()
    tmp_path.chmod(0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with postgres_server(programs) as dsn, psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
