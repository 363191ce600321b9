"""Runs a program that was written for pylance; see `lancelet.as_lance`."""

import runpy
import sys
from pathlib import Path

import lancelet.as_lance  # noqa: F401 - from here on `lance` is lancelet

USAGE = "usage: python -m lancelet.as_lance (PROGRAM | -m MODULE) [ARGUMENT ...]"


def main(arguments: list[str]) -> None:
    """Run a program or a module as `__main__` with the remaining arguments."""
    if arguments[:1] in (["-h"], ["--help"]):
        sys.stdout.write(f"{USAGE}\n")
        return
    match arguments:
        case ["-m", module, *rest]:
            sys.argv = [module, *rest]
            sys.path[0] = str(Path.cwd())
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case [program, *rest] if not program.startswith("-"):
            sys.argv = [program, *rest]
            sys.path[0] = str(Path(program).resolve().parent)
            runpy.run_path(program, run_name="__main__")
        case _:
            sys.exit(USAGE)


if __name__ == "__main__":
    main(sys.argv[1:])
