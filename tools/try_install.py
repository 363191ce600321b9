"""Install lancelet into fresh environments as a user would, with a compiler and without one.

python tools/try_install.py            both
python tools/try_install.py --pure     only without a compiler
"""

import argparse
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def try_install(*, pure: bool) -> None:
    """Install from the sources into a new environment and run the first program there."""
    environment = dict(os.environ)
    environment.pop("PYTHONPATH", None)
    if pure:
        environment |= {"CC": "no-compiler-here", "CXX": "no-compiler-here"}
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / ("Scripts" if os.name == "nt" else "bin") / "python"
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        # Outside the checkout, so that the installed package is imported.
        run = {"env": environment, "cwd": folder}
        subprocess.run([*pip, str(ROOT)], check=True, **run)
        program = [str(python), str(ROOT / "tools" / "try_wheel.py")]
        subprocess.run([*program, "--pure" if pure else "--native"], check=True, **run)


def main() -> int:
    """Run the requested installations."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pure", action="store_true", help="only without a compiler")
    if not parser.parse_args().pure:
        try_install(pure=False)
    try_install(pure=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
