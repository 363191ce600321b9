"""Install programs that tests need: `python tools/provide.py browser model`.

On Debian and Ubuntu, root installs their packages; elsewhere they must be installed already.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

PROGRAMS = {
    "browser": {"chromium": "chromium", "chromedriver": "chromium-driver"},
    "model": {"spin": "spin", "cc": "gcc"},
    "arm": {"aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu", "qemu-aarch64": "qemu-user"},
}
"""The programs that each kind of tests needs, and their packages."""


def main() -> int:
    """Install missing programs, or print the packages to install."""
    needed = {name: package for kind in sys.argv[1:] for name, package in PROGRAMS[kind].items()}
    packages = [package for name, package in needed.items() if shutil.which(name) is None]
    if not packages:
        return 0
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        print(f"these tests need {' and '.join(needed)} on the path; install {' '.join(packages)}")
        return 1
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends"]):
        names = packages if command[0] == "install" else ()
        subprocess.run(
            ["apt-get", *command, *names],
            check=True,
            env=environment,
            stdout=subprocess.DEVNULL,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
