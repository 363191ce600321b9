"""The methods of a dataset that change its columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypedDict

import pyarrow as pa

from lancelet import ops
from lancelet.dataset.argument_kinds import checks_kinds
from lancelet.dataset.transforms import new_columns_of
from lancelet.errors import InvalidInputError
from lancelet.file.arguments import instance, mapping, text, texts

if TYPE_CHECKING:
    from lancelet.dataset.handle import Handle
    from lancelet.ops.columns.alter import Alteration
    from lancelet.ops.dry_run import ChangeReport


class AlterColumn(TypedDict, total=False):
    """What becomes of a column; keys that are missing leave that part as it is."""

    path: str
    name: str | None
    nullable: bool | None
    data_type: pa.DataType | None


class EvolutionMethods:
    """Adds, alters and drops columns.

    With `dry_run`, each method changes nothing and returns what it would have changed.
    """

    _handle: Handle

    @checks_kinds
    def add_columns(
        self,
        transforms: Any,
        read_columns: list[str] | None = None,
        reader_schema: pa.Schema | None = None,
        batch_size: int | None = None,
        *,
        dry_run: bool = False,
    ) -> ChangeReport | None:
        """Add columns, or fields of structs that are there, without rewriting what is stored.

        Args:
            transforms: SQL expressions by the name of the new column; a function or `BatchUDF`
                that returns new columns for a batch of rows; rows in the order of the table; or a
                field, list of fields or schema, for columns that are null everywhere.
            read_columns: What a function is given; by default, all columns.
            reader_schema: The schema of rows that do not say it themselves.
            batch_size: How many rows to work on at a time.
            dry_run: Whether to change nothing and return what would change.
        """
        handle = self._handle
        source = new_columns_of(
            transforms, handle.snapshot, read_columns, reader_schema, batch_size
        )
        if dry_run:
            return ops.columns.add.report_add_columns(handle.snapshot, source)
        handle.snapshot = ops.columns.add.add_columns(handle.snapshot, source)
        return None

    @checks_kinds
    def merge(
        self,
        data_obj: Any,
        left_on: str,
        right_on: str | None = None,
        schema: pa.Schema | None = None,
        *,
        dry_run: bool = False,
    ) -> ChangeReport | None:
        """Add the columns of other rows, joined to those there are; null where none matches.

        Args:
            data_obj: The other rows, which have to fit in memory.
            left_on: The column of the dataset to join on; `_rowid` and `_rowaddr` may be it too.
            right_on: The column of the other rows; by default, of the same name.
            schema: The schema of the other rows, where they do not say it themselves.
            dry_run: Whether to change nothing and return what would change.
        """
        handle = self._handle
        rows, right = ops.rows.read_rows_of(data_obj, schema), right_on or left_on
        if dry_run:
            return ops.columns.add.report_join_columns(handle.snapshot, rows, left_on, right)
        handle.snapshot = ops.columns.add.join_columns(handle.snapshot, rows, left_on, right)
        return None

    def alter_columns(
        self, *alterations: AlterColumn, dry_run: bool = False
    ) -> ChangeReport | None:
        """Rename columns, change their types, and say whether they may be null.

        Args:
            alterations: Dicts with `path` and at least one of `name`, `nullable`, `data_type`.
            dry_run: Whether to change nothing and return what would change.
        """
        handle = self._handle
        parsed = [_alteration(each) for each in alterations]
        if dry_run:
            return ops.columns.alter.report_alter_columns(handle.snapshot, parsed)
        handle.snapshot = ops.columns.alter.alter_columns(handle.snapshot, parsed)
        return None

    def drop_columns(self, columns: list[str], *, dry_run: bool = False) -> ChangeReport | None:
        """Drop columns, or fields of structs; their indices go with them.

        Files keep the values until they are compacted and cleaned up.

        Args:
            columns: Paths of what to drop.
            dry_run: Whether to change nothing and return what would change.
        """
        columns = texts("columns", columns)
        handle = self._handle
        if dry_run:
            return ops.columns.drop.report_drop_columns(handle.snapshot, columns)
        handle.snapshot = ops.columns.drop.drop_columns(handle.snapshot, columns)
        return None

    def replace_columns(
        self, values: Mapping[int, Any], *, dry_run: bool = False
    ) -> ChangeReport | None:
        """Replace whole columns of some fragments, without touching anything else.

        Args:
            values: By the id of a fragment, a row for each of its rows that are not deleted. All
                bring the same columns, which are those that are replaced.
            dry_run: Whether to change nothing and return what would change.
        """
        handle = self._handle
        rows = {fragment_id: ops.rows.read_rows_of(data) for fragment_id, data in values.items()}
        columns = dict.fromkeys(name for each in rows.values() for name in each.schema.names)
        if dry_run:
            by_id = handle.snapshot.fragments.by_id
            num_rows = sum(handle.snapshot.live_rows(by_id(each)) for each in rows)
            return ops.dry_run.rehearse(
                handle.snapshot,
                lambda current: ops.columns.replace.replace_columns(current, list(columns), rows),
                num_rows,
            )
        handle.snapshot = ops.columns.replace.replace_columns(handle.snapshot, list(columns), rows)
        return None

    def migrate_to_stable_row_ids(self, *, dry_run: bool = False) -> ChangeReport | None:
        """Give rows ids that they keep when they move, from the next version on.

        Ids are the addresses that rows have now, so what was noted of them stays true, and so do
        indices. A dataset that has such ids already is left as it is.

        Args:
            dry_run: Whether to change nothing and return what would change.
        """
        handle = self._handle
        if dry_run:
            return ops.migrate_row_ids.report_migration(handle.snapshot)
        handle.snapshot = ops.migrate_row_ids.migrate_to_stable_row_ids(handle.snapshot)
        return None


_ALTERABLE: Final[dict[str, type]] = {
    "name": str,
    "nullable": bool,
    "data_type": pa.DataType,
}


def _alteration(form: AlterColumn) -> Alteration:
    mapping("alterations", form)
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
    text("path", path)
    for key, value in given.items():
        if value is not None:
            instance(key, value, _ALTERABLE[key])
    return ops.columns.alter.Alteration(
        path, form.get("name"), form.get("nullable"), form.get("data_type")
    )
