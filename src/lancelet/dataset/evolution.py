"""The methods of a dataset that change its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

import pyarrow as pa

from lancelet.dataset.transforms import new_columns_of
from lancelet.errors import InvalidInputError
from lancelet.ops.columns.add import add_columns
from lancelet.ops.columns.alter import Alteration, alter_columns
from lancelet.ops.columns.drop import drop_columns

if TYPE_CHECKING:
    from lancelet.dataset.handle import Handle


class AlterColumn(TypedDict, total=False):
    """What becomes of a column; keys that are missing leave that part as it is."""

    path: str
    name: str | None
    nullable: bool | None
    data_type: pa.DataType | None


class EvolutionMethods:
    """Adds, alters and drops columns."""

    _handle: Handle

    def add_columns(
        self,
        transforms: Any,
        read_columns: list[str] | None = None,
        reader_schema: pa.Schema | None = None,
        batch_size: int | None = None,
    ) -> None:
        """Add columns, or fields of structs that are there, without rewriting what is stored.

        Args:
            transforms: SQL expressions by the name of the new column; a function or `BatchUDF`
                that returns new columns for a batch of rows; rows in the order of the table; or a
                field, list of fields or schema, for columns that are null everywhere.
            read_columns: What a function is given; by default, all columns.
            reader_schema: The schema of rows that do not say it themselves.
            batch_size: How many rows to work on at a time.
        """
        handle = self._handle
        source = new_columns_of(
            transforms, handle.snapshot, read_columns, reader_schema, batch_size
        )
        handle.snapshot = add_columns(handle.snapshot, source)

    def alter_columns(self, *alterations: AlterColumn) -> None:
        """Rename columns, change their types, and say whether they may be null.

        Each alteration is a dict with `path` and at least one of `name`, `nullable`, `data_type`.
        """
        handle = self._handle
        handle.snapshot = alter_columns(
            handle.snapshot, [_alteration(each) for each in alterations]
        )

    def drop_columns(self, columns: list[str]) -> None:
        """Drop columns, or fields of structs; their indices go with them.

        Files keep the values until they are compacted and cleaned up.
        """
        handle = self._handle
        handle.snapshot = drop_columns(handle.snapshot, columns)


_ALTERABLE = ("name", "nullable", "data_type")


def _alteration(form: AlterColumn) -> Alteration:
    if "path" not in form:
        raise InvalidInputError("path is required", found=sorted(form))
    path = form["path"]
    given = {key: value for key, value in form.items() if key != "path"}
    unknown = sorted(given.keys() - set(_ALTERABLE))
    if unknown:
        raise InvalidInputError(
            f"Unknown key: {unknown[0]}. Valid keys are name, nullable, and data_type."
        )
    if all(value is None for value in given.values()):
        raise InvalidInputError(
            "At least one of name, nullable, or data_type must be specified", path=path
        )
    return Alteration(path, form.get("name"), form.get("nullable"), form.get("data_type"))
