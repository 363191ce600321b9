"""`lancelet doctor`: shows versions and extras. The exit code is 1 if a problem was found."""

from __future__ import annotations

import argparse
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from lancelet import config
from lancelet.about import __version__
from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.dataset.show.display import size_text
from lancelet.format.version import DEFAULT_VERSION, FileVersion
from lancelet.kernels.select import backend, instruction_sets

_NEEDED: Final = ("numpy", "pyarrow", "protobuf", "obstore", "pyroaring", "zstandard")
_EXTRAS: Final = {
    "spark": "pyspark",
    "sql": "datafusion duckdb",
    "plot": "matplotlib",
    "pydantic": "pydantic",
    "namespace": "lance-namespace",
    "delta": "deltalake",
    "iceberg": "pyiceberg",
    "fsspec": "fsspec",
    "hub": "huggingface_hub",
    "dynamodb": "boto3",
    "glue": "boto3",
    "postgres": "psycopg",
    "torch": "torch",
    "chinese": "jieba",
    "japanese": "lindera-python",
    "icu": "PyICU",
    "geo": "shapely",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command: none."""


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Print versions, kernels and extras."""
    del arguments
    out.facts(
        {
            "lancelet": __version__,
            "python": platform.python_version(),
            "platform": platform.platform(),
            "kernels": backend(),
            "instruction_sets": list(instruction_sets()),
            "file_versions": [each.value for each in FileVersion],
            "default_file_version": DEFAULT_VERSION.value,
            "processors": config.CPU_THREADS,
            "memory_limit": _bytes(config.MEMORY_LIMIT_BYTES, out),
            "cache": _bytes(config.CACHE_BYTES, out),
            **{name: _installed(name) for name in _NEEDED},
            **{f"extra {extra}": _installed(names) for extra, names in _EXTRAS.items()},
        }
    )
    if backend() == "reference":
        out.warn("the native kernels are not in use, so reading and writing are slow")
        return ExitCode.FOUND
    return ExitCode.DONE


def _installed(names: str) -> str:
    """Return the versions of packages; names are separated by spaces."""
    try:
        return ", ".join(version(name) for name in names.split())
    except PackageNotFoundError:
        return "not installed"


def _bytes(count: int, out: Output) -> int | str:
    return count if not out.is_for_people else size_text(count)
