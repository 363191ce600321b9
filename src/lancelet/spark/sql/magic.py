"""The notebook magic `%%lance_sql`, which runs an SQL statement and shows its result.

    %load_ext lancelet.spark.sql.magic

    %%lance_sql result --rows 50
    SELECT day, sum(price) FROM lance.`/data/orders` WHERE day >= :first GROUP BY day

Parameters `:name` and data frames `{name}` refer to variables of the notebook, as does `spark`. The
result is assigned to the variable named after the magic.
"""

from __future__ import annotations

import argparse
import html
import re
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame

from lancelet.errors import InvalidInputError
from lancelet.spark.sql.run import sql

_ROWS: Final = 20
_MARKER: Final = re.compile(r"(?<![:\w]):([A-Za-z_]\w*)")
_FRAME: Final = re.compile(r"\{([A-Za-z_]\w*)\}")


class Shown:
    """The first rows of a result, as a notebook or a terminal shows them."""

    def __init__(self, rows: pa.Table, *, is_cut: bool) -> None:
        """Show rows; `is_cut` means that there are more."""
        self.rows = rows
        self._is_cut = is_cut

    def __repr__(self) -> str:
        """Return the rows as text, one per line."""
        lines = [" | ".join(self.rows.column_names)]
        lines += [" | ".join(map(str, row.values())) for row in self.rows.to_pylist()]
        return "\n".join([*lines, *(["..."] if self._is_cut else [])])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.rows.column_names)
        body = "".join(
            "<tr>"
            + "".join(f"<td>{html.escape(str(each))}</td>" for each in row.values())
            + "</tr>"
            for row in self.rows.to_pylist()
        )
        more = "<p>There are more rows.</p>" if self._is_cut else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def run_cell(names: dict[str, Any], line: str, cell: str) -> Shown:
    """Run a cell with the variables of the notebook and return the first rows."""
    parser = argparse.ArgumentParser(
        prog="%%lance_sql", exit_on_error=False, add_help=False, allow_abbrev=False
    )
    parser.add_argument("result", nargs="?")
    parser.add_argument("--rows", type=int, default=_ROWS)
    try:
        options = parser.parse_args(line.split())
    except (argparse.ArgumentError, SystemExit) as error:
        raise InvalidInputError(
            "invalid arguments; write %%lance_sql [variable] [--rows 20]", found=line.strip()
        ) from error
    spark = names.get("spark")
    if spark is None:
        raise InvalidInputError("the notebook has no variable `spark`; assign the session to it")
    values = {name: names[name] for name in _MARKER.findall(cell) if name in names}
    frames = {
        name: names[name] for name in _FRAME.findall(cell) if isinstance(names.get(name), DataFrame)
    }
    frame = sql(spark, cell.strip(), **values, **frames)
    if options.result is not None:
        names[options.result] = frame
    if not frame.columns:
        return Shown(pa.table({}), is_cut=False)
    rows = frame.limit(options.rows + 1).toArrow()
    return Shown(rows.slice(0, options.rows), is_cut=rows.num_rows > options.rows)


def load_ipython_extension(shell: Any) -> None:
    """Register the magic in a notebook."""

    def lance_sql(line: str, cell: str) -> Shown:
        return run_cell(shell.user_ns, line, cell)

    shell.register_magic_function(lance_sql, "cell", "lance_sql")
