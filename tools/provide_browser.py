"""Make sure that Chromium and its driver are there, for the tests of the page.

On Debian and its like they are installed from its packages where this may be done; elsewhere they
must be there already.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NEEDED = ("chromium", "chromedriver")
PACKAGES = ("chromium", "chromium-driver")


def main() -> int:
    """Install what is missing, or say what to install."""
    if all(map(shutil.which, NEEDED)):
        return 0
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        print(f"the tests of the page need {' and '.join(NEEDED)} on the path")
        return 1
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends"]):
        packages = PACKAGES if command[0] == "install" else ()
        subprocess.run(
            ["apt-get", *command, *packages],
            check=True,
            env=environment,
            stdout=subprocess.DEVNULL,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
