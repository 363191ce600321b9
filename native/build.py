"""Build the native module in place, for development.

    python native/build.py              incremental build in build/native
    python native/build.py --sanitize   build with AddressSanitizer and UBSan in a copy of the
                                        package, and run the kernel tests against that copy

The module replaces the old one by an atomic rename, because other processes may have it mapped.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "lancelet"
BUILD = ROOT / "build" / "native"
SANITIZED = ROOT / "build" / "sanitized"
TESTS = ("tests/unit/kernels", "tests/unit/index/kernels")


def main() -> None:
    """Build the module; with `--sanitize`, also run the kernel tests."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sanitize", action="store_true", help="build and test with sanitizers")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count())
    parser.add_argument("tests", nargs="*", default=TESTS, help="tests to run with sanitizers")
    arguments = parser.parse_args()
    if arguments.sanitize:
        compile_module(SANITIZED / "native", arguments.jobs, "-DLANCELET_SANITIZE=ON")
        package = SANITIZED / "package" / "lancelet"
        shutil.rmtree(package, ignore_errors=True)
        shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("_native.*.*", "*.pyc"))
        install_module(SANITIZED / "native", package)
        sys.exit(test_sanitized(package.parent, arguments.tests))
    compile_module(BUILD, arguments.jobs)
    install_module(BUILD, PACKAGE)


def compile_module(directory: Path, jobs: int, *options: str) -> None:
    """Configure if necessary, then build incrementally."""
    # The virtual environment of this interpreter may not be activated.
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    cmake = shutil.which("cmake", path=search)
    if cmake is None:
        sys.exit("cmake is missing; `make setup` installs it")
    environment = {**os.environ, "PATH": search}
    if not (directory / "build.ninja").exists():
        configure = [cmake, "-S", str(ROOT / "native"), "-B", str(directory), "-G", "Ninja"]
        configure += [f"-DPython_EXECUTABLE={sys.executable}", "--log-level=WARNING", *options]
        subprocess.run(configure, check=True, env=environment, stdout=subprocess.DEVNULL)
    build = [cmake, "--build", str(directory), "-j", str(jobs)]
    result = subprocess.run(build, check=False, env=environment, capture_output=True, text=True)
    if "warning:" in result.stdout or result.returncode:
        sys.stderr.write(result.stdout + result.stderr)
    if result.returncode:
        sys.exit(f"the native kernels did not compile in {directory.relative_to(ROOT)}")


def install_module(built: Path, package: Path) -> None:
    """Replace the module of a package atomically."""
    for module in built.glob("_native.*"):
        if module.suffix not in (".so", ".pyd"):
            continue
        target = package / "kernels" / module.name
        if target.exists() and target.read_bytes() == module.read_bytes():
            continue
        temporary = target.with_name(f".{module.name}.{os.getpid()}")
        shutil.copy2(module, temporary)
        temporary.replace(target)


def test_sanitized(path: Path, tests: list[str]) -> int:
    """Run the kernel tests against the package in `path`."""
    # The interpreter is built without sanitizers, so their runtimes must be preloaded.
    runtimes = " ".join(
        subprocess.check_output(["g++", f"-print-file-name={name}"], text=True).strip()
        for name in ("libasan.so", "libubsan.so", "libstdc++.so.6")
    )
    environment = {
        **os.environ,
        "LD_PRELOAD": runtimes,
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "PYTHONPATH": str(path),
        "PYTHONMALLOC": "malloc",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    return subprocess.run(command, check=False, cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    main()
