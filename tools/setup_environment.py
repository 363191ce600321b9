"""Make `.venv` ready for work: dependencies, the native kernels, and Java where Spark needs it.

Runs on any Python 3.11+ and needs nothing installed beside a C++ compiler. What was done is
remembered by a fingerprint of its inputs, so a second run is instant.

    python3 tools/setup_environment.py [--group test ...] [--extra sql ...] [--java]
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = Path(os.environ.get("LANCELET_VENV", ROOT / ".venv"))
BIN = ENVIRONMENT / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
BUILD_TOOLS = ["cmake>=3.24", "ninja"]


def requirements(groups: list[str], extras: list[str]) -> list[str]:
    """Return the requirements of pyproject.toml: build, run, and the named groups and extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [
        *project["build-system"]["requires"],
        *BUILD_TOOLS,
        *project["project"]["dependencies"],
    ]
    for group in groups:
        wanted += project["dependency-groups"][group]
    for extra in extras:
        wanted += project["project"]["optional-dependencies"][extra]
    return wanted


def install(wanted: list[str]) -> None:
    """Install packages, with uv where it is present; do nothing when they already are."""
    stamp = ENVIRONMENT / ".lancelet-requirements"
    fingerprint = hashlib.sha256("\n".join(sorted(wanted)).encode()).hexdigest()
    done = stamp.read_text(encoding="ascii").split() if stamp.exists() else []
    if fingerprint in done:
        return
    uv = shutil.which("uv")
    if uv:
        command = [uv, "pip", "install", "--quiet", "--python", str(PYTHON), *wanted]
    else:
        command = [
            str(PYTHON),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            *wanted,
        ]
    subprocess.run(command, check=True)
    stamp.write_text("\n".join([*done, fingerprint]), encoding="ascii")


def link_sources() -> None:
    """Put `src` and the repository's root, for `tests.kit`, on the environment's path."""
    site = subprocess.run(
        [str(PYTHON), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    (Path(site) / "lancelet-sources.pth").write_text(f"{ROOT / 'src'}\n{ROOT}\n", encoding="utf-8")


def main() -> int:
    """Create the environment and fill it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--group", action="append", default=[])
    parser.add_argument("--extra", action="append", default=[])
    parser.add_argument("--java", action="store_true", help="provide a JDK where there is none")
    arguments = parser.parse_args()
    if sys.version_info < (3, 11):  # noqa: UP036  the message is for whoever starts it with an old one
        print(f"lancelet needs Python 3.11 or later, this is {sys.version.split()[0]}")
        return 1
    if not PYTHON.exists():
        venv.create(ENVIRONMENT, with_pip=True)
    install(requirements(arguments.group, arguments.extra))
    link_sources()
    if arguments.java:
        subprocess.run([str(PYTHON), str(ROOT / "tools" / "provide_java.py")], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
