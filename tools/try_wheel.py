"""Use an installed lancelet as a first program would, and fail on a warning.

python tools/try_wheel.py             with whatever kernels are installed
python tools/try_wheel.py --native    the native kernels must be there
python tools/try_wheel.py --pure      they must not: one warning, and everything works
"""

import argparse
import tempfile
import warnings
from pathlib import Path

import pyarrow as pa


def main() -> None:
    """Run the program and print the kernels in use."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    kernels = parser.add_mutually_exclusive_group()
    kernels.add_argument("--native", action="store_true")
    kernels.add_argument("--pure", action="store_true")
    arguments = parser.parse_args()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        backend = first_program()
    slow = [warning for warning in caught if warning.category.__name__ == "SlowKernelsWarning"]
    others = [warning for warning in caught if warning not in slow]
    if others:
        raise SystemExit(f"unexpected warnings: {[str(warning.message) for warning in others]}")
    if len(slow) != (backend == "reference"):
        raise SystemExit(f"{len(slow)} warnings about slow kernels with {backend}")
    if (arguments.native and backend == "reference") or (arguments.pure and backend != "reference"):
        raise SystemExit(f"the kernels in use are {backend}")
    print(f"written, changed, searched and read with the kernels {backend}")


def first_program() -> str:
    """Return the name of the kernels that wrote, changed, searched and read a table."""
    import lancelet as lance  # noqa: PLC0415  its import may warn, which is judged
    from lancelet import kernels  # noqa: PLC0415  the same

    with tempfile.TemporaryDirectory() as folder:
        people = pa.table({"id": range(100), "name": [f"person {i}" for i in range(100)]})
        table = lance.write_dataset(people, str(Path(folder) / "people.lance"))
        late = pa.table({"id": [5, 500], "name": ["five", "five hundred"]})
        table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(
            late
        )
        found = table.to_table(filter="name LIKE 'five%'", columns=["id"])["id"].to_pylist()
        if found != [5, 500]:
            raise SystemExit(f"found {found} instead of [5, 500]")
        if table.take([0])["name"].to_pylist() != ["person 0"]:
            raise SystemExit("the first row is another")
    return kernels.backend()


if __name__ == "__main__":
    main()
