"""The metastore of Hive 2.3 as a process, from the JARs that pyspark contains.

    with hive_metastore(folder) as uri:
        HiveNamespace(uri=uri)

Its database is in memory. It starts within a few seconds.
"""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

_MAIN = "org.apache.hadoop.hive.metastore.HiveMetaStore"
_PROPERTIES = {
    "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
    "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
    "datanucleus.connectionPoolingType": "HikariCP",
    "datanucleus.schema.autoCreateAll": "true",
    "hive.metastore.schema.verification": "false",
    "hive.async.log.enabled": "false",
}


@contextmanager
def hive_metastore(folder: Path) -> Iterator[str]:
    """Start a metastore with its warehouse in a folder, and yield its URI."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    jars = Path(spec.origin).parent / "jars"
    java = shutil.which("java")
    assert java is not None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {**_PROPERTIES, "hive.metastore.warehouse.dir": str(folder / "warehouse")}
    rows = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in settings.items()
    )
    (folder / "hive-site.xml").write_text(f"<configuration>{rows}</configuration>")
    log = folder / "metastore.log"
    # Derby writes `derby.log` into the working directory.
    command = [java, "-Xmx512m", "-cp", f"{folder}:{jars}/*", _MAIN, "-p", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
    try:
        while not _accepts(port):
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        yield f"thrift://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
