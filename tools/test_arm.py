"""Run the tests of the kernels on aarch64, by emulation: `python tools/test_arm.py`.

    build/arm/native     the kernels, cross-compiled
    build/arm/root       Debian's Python and its libraries for arm64, unpacked and not installed
    build/arm/site       wheels for aarch64 of the packages that tests import
    build/arm/package    the package with these kernels

Nothing outside of `build/arm` changes. It needs a Debian or Ubuntu with the programs that
`tools/provide.py arm` installs: the compiler, and qemu, which runs Python.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "arm"
SYSTEM = BUILD / "root"
COMPILER = "aarch64-linux-gnu-g++"
PLATFORMS = ["manylinux2014_aarch64", *(f"manylinux_2_{n}_aarch64" for n in range(17, 37))]
"""Wheels for the releases of glibc up to that of Debian 12."""
NEEDED = ("python3", "libstdc++6")
"""Packages of Debian: Python, and what wheels expect of any system."""
TESTING = ("pytest", "hypothesis")

sys.path.insert(0, str(ROOT / "native"))
from build import PACKAGE, compile_module  # noqa: E402


def main() -> int:
    """Build missing parts and run the given tests, by default those of the kernels."""
    tests = sys.argv[1:] or ["tests/unit/kernels", "tests/unit/index/kernels"]
    options = ("-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64")
    compile_module(
        BUILD / "native", os.cpu_count() or 1, *options, f"-DCMAKE_CXX_COMPILER={COMPILER}"
    )
    unpack_python()
    (python,) = (each for each in SYSTEM.glob("usr/bin/python3.*") if each.name[9:].isdigit())
    fetch_wheels(python.name.removeprefix("python"))
    package = BUILD / "package" / "lancelet"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("_native.*.*", "*.pyc"))
    (module,) = (BUILD / "native").glob("_native.*.so")
    # The build names it after the machine that compiles.
    shutil.copy2(module, package / "kernels" / "_native.abi3.so")
    # The tests share a module of `tests/kit`.
    path = os.pathsep.join(map(str, (package.parent, BUILD / "site", ROOT)))
    environment = {**os.environ, "PYTHONPATH": path}
    environment.pop("VIRTUAL_ENV", None)
    command = ["qemu-aarch64", "-L", str(SYSTEM), str(python), "-m", "pytest", "-q"]
    # Tests further up compare with pylance and Spark, which are not emulated.
    command += ["-p", "no:cacheprovider", "--confcutdir=tests/unit"]
    # Instruction sets are chosen in new processes, which only the system could emulate.
    command += ["--ignore=tests/unit/kernels/test_select.py", "--hypothesis-profile=ci", *tests]
    return subprocess.run(command, check=False, cwd=ROOT, env=environment).returncode


def unpack_python() -> None:
    """Unpack Python for arm64, as this release of Debian has it, with all that it depends on."""
    if SYSTEM.exists():
        return
    apt = BUILD / "apt"
    folders = [apt / "lists" / "partial", apt / "cache" / "archives" / "partial", apt / "packages"]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    (apt / "status").touch()
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "root",
        "Dir::State::lists": apt / "lists",
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt / "cache",
    }
    options = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
    packages = apt / "packages"
    run("apt-get", *options, "update", "-qq", cwd=packages)
    only = ["recommends", "suggests", "conflicts", "breaks", "replaces", "enhances"]
    depends = ["depends", "--recurse", *(f"--no-{each}" for each in only), *NEEDED]
    listing = run("apt-cache", *options, *depends, cwd=packages)
    names = sorted({line for line in listing.splitlines() if line and line[0] not in " |<"})
    run("apt-get", *options, "download", "-qq", *names, cwd=packages)
    unpacked = BUILD / "unpacked"
    for file in sorted(packages.glob("*.deb")):
        run("dpkg", "-x", str(file), str(unpacked), cwd=packages)
    unpacked.rename(SYSTEM)


def fetch_wheels(version: str) -> None:
    """Install wheels for aarch64 of the imported packages."""
    site = BUILD / "site"
    if site.exists():
        return
    import tomllib  # noqa: PLC0415 - only once

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    install = [sys.executable, "-m", "pip", "install", "-q", "--target", str(BUILD / "fetched")]
    install += ["--only-binary=:all:", "--implementation=cp", f"--python-version={version}"]
    install += [f"--platform={each}" for each in PLATFORMS]
    run(*install, *project["dependencies"], *TESTING, cwd=ROOT)
    (BUILD / "fetched").rename(site)


def run(*command: str, cwd: Path) -> str:
    """Run a program and return its output."""
    result = subprocess.run(command, check=False, cwd=cwd, capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{' '.join(command[:3])} failed:\n{result.stderr}")
    return result.stdout


if __name__ == "__main__":
    sys.exit(main())
