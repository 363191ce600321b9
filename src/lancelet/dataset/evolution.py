"""The methods of a dataset that change its columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypedDict

import pyarrow as pa

from lancelet import ops
from lancelet.dataset.argument_kinds import checks_kinds
from lancelet.dataset.progress import ProgressOption, shown
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
        progress: ProgressOption = None,
        dry_run: bool = False,
    ) -> ChangeReport | None:
        """Add columns, or fields of structs, without rewriting existing data files.

        Args:
            transforms: SQL expressions by column name; a function or `BatchUDF` that maps a batch
                to new columns; rows in the order of the table; or a field, list of fields or schema
                for all-null columns.
            read_columns: The columns passed to a function; by default all.
            reader_schema: The schema of the given rows, if they do not carry one.
            batch_size: The number of rows per batch.
            progress: Whether to show a progress bar, or a function called with `IndexProgress`.
            dry_run: Preview: commit nothing and return a `ChangeReport` of what would change.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            ExpressionError: If the expression does not parse, or names a column that is not there.
            InvalidInputError: If a column of that name exists.
            CommitConflictError: If a concurrent commit changed the same thing first.

        Example:
            ```python
            dataset.add_columns({"total": "price * 1.19"})
            dataset.add_columns(pa.field("note", pa.string()))
            ```
        """
        handle = self._handle
        source = new_columns_of(
            transforms, handle.snapshot, read_columns, reader_schema, batch_size
        )
        if dry_run:
            return ops.columns.add.report_add_columns(handle.snapshot, source)
        with shown(progress):
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
        """Add columns by a left join with other rows.

        Args:
            data_obj: The rows to join; they have to fit in memory.
            left_on: The key column of the dataset; `_rowid` and `_rowaddr` work as well.
            right_on: The key column of the other rows; by default the same name.
            schema: The schema of the other rows, if they do not carry one.
            dry_run: Preview: commit nothing and return a `ChangeReport` of what would change.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            InvalidInputError: If there is no such key column, or a column exists already.
            CommitConflictError: If a concurrent commit changed the same thing first.

        Example:
            ```python
            dataset.merge({"id": [1, 2], "stock": [5, 0]}, "id")
            dataset.count_rows("stock is null")  # 18
            ```
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
        """Rename columns, cast them, or change whether they may be null.

        Args:
            alterations: Dicts with `path` and at least one of `name`, `nullable`, `data_type`.
            dry_run: Preview: commit nothing and return a `ChangeReport` of what would change.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            FieldNotFoundError: If there is no such column.
            CommitConflictError: If a concurrent commit changed the same thing first.

        Example:
            ```python
            dataset.alter_columns({"path": "price", "name": "cost", "data_type": pa.float32()})
            ```
        """
        handle = self._handle
        parsed = [_alteration(each) for each in alterations]
        if dry_run:
            return ops.columns.alter.report_alter_columns(handle.snapshot, parsed)
        handle.snapshot = ops.columns.alter.alter_columns(handle.snapshot, parsed)
        return None

    def drop_columns(self, columns: list[str], *, dry_run: bool = False) -> ChangeReport | None:
        """Drop columns or fields of structs, and their indices.

        Data files keep the values until compaction and cleanup.

        Args:
            columns: The paths to drop.
            dry_run: Preview: commit nothing and return a `ChangeReport` of what would change.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            FieldNotFoundError: If there is no such column.
            CommitConflictError: If a concurrent commit changed the same thing first.

        Example:
            ```python
            dataset.drop_columns(["text"])
            ```
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
        """Replace whole columns of some fragments; other columns are not rewritten.

        Args:
            values: Per fragment id, one row for each live row. All fragments bring the same
                columns.
            dry_run: Preview: commit nothing and return a `ChangeReport` of what would change.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            SchemaMismatchError: If the rows do not fit the schema, or a value would change by
                conversion.
            CommitConflictError: If a concurrent commit changed the same thing first.

        Example:
            ```python
            dataset.replace_columns({0: {"price": [1.0] * 10}, 1: {"price": [2.0] * 10}})
            ```
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
        """Give rows stable ids, which they keep when they move.

        The ids are the current row addresses, so indices stay valid. A dataset that has stable row
        ids already is left as it is.

        Args:
            dry_run: Preview: commit nothing and return a `ChangeReport` of what would change.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            CommitConflictError: If a concurrent commit changed the same thing first.

        Example:
            ```python
            plain = lance.write_dataset({"id": [1, 2]}, "memory://")
            plain.migrate_to_stable_row_ids()
            plain.has_stable_row_ids  # True
            ```
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
