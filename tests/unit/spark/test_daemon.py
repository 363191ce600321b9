"""The daemon forks workers that have everything imported."""

import socket
import struct
import subprocess
import sys
from pathlib import Path


def test_the_daemon_forks_workers_with_loaded_imports():
    command = [sys.executable, "-m", "lancelet.spark.daemon", "pyspark.worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as daemon:
        (port,) = struct.unpack("!i", daemon.stdout.read(4))
        with socket.create_connection(("127.0.0.1", port), timeout=60) as worker:
            (pid,) = struct.unpack("!i", worker.recv(4, socket.MSG_WAITALL))
            assert pid not in {0, daemon.pid}
            mapped = Path(f"/proc/{pid}/maps")
            if mapped.exists():
                assert "pyarrow" in mapped.read_text()
        daemon.stdin.close()
        assert daemon.wait(timeout=60) is not None
