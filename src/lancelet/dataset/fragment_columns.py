"""The methods of a fragment that write columns of it, for a commit that somebody makes later.

for fragment in dataset.get_fragments():       each may run on another machine
    metadata, schema = fragment.merge_columns({"b": "a + 1"})
LanceOperation.Merge([metadata, ...], schema)  the commit that adds the columns everywhere
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

import pyarrow as pa
from pyroaring import BitMap

from lancelet import ops
from lancelet.dataset.argument_kinds import checks_kinds
from lancelet.dataset.lance_schema import LanceSchema
from lancelet.dataset.metadata import FragmentMetadata, fragment_to_user
from lancelet.dataset.transforms import new_columns_of
from lancelet.dataset.udf import BatchUDF
from lancelet.errors import InvalidInputError
from lancelet.format.fragment import Fragment

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset


class FragmentColumnMethods:
    """Writes columns of one fragment; nothing that readers see changes."""

    _dataset: LanceDataset
    _fragment: Fragment

    @checks_kinds
    def merge_columns(
        self,
        value_func: Any,
        columns: list[str] | None = None,
        batch_size: int | None = None,
        reader_schema: pa.Schema | None = None,
    ) -> tuple[FragmentMetadata, LanceSchema]:
        """Write new columns; see `LanceDataset.add_columns` for what may be given.

        Args:
            value_func: Where the values come from.
            columns: What a function is given; by default, all columns.
            batch_size: How many rows to work on at a time.
            reader_schema: The schema of rows that do not say it themselves.

        Returns:
            The fragment with its new file, and the schema of the dataset with the new columns.
        """
        if isinstance(value_func, BatchUDF) and value_func.cache is not None:
            raise InvalidInputError(
                "A checkpoint file cannot be used when applying a UDF with "
                "LanceFragment.merge_columns; keep what is done of each fragment yourself"
            )
        snapshot = self._dataset.snapshot
        source = new_columns_of(value_func, snapshot, columns, reader_schema, batch_size)
        fragment, schema = ops.columns.add.add_columns_to_fragment(snapshot, self._fragment, source)
        return fragment_to_user(fragment), LanceSchema(schema)

    @checks_kinds
    def merge(
        self,
        data_obj: Any,
        left_on: str,
        right_on: str | None = None,
        schema: pa.Schema | None = None,
    ) -> tuple[FragmentMetadata, LanceSchema]:
        """Write the columns of other rows, joined to those there are.

        See `LanceDataset.merge` for the arguments, and `merge_columns` for what is returned.
        """
        snapshot, rows = self._dataset.snapshot, ops.rows.read_rows_of(data_obj, schema)
        fragment, merged = ops.columns.add.join_columns_to_fragment(
            snapshot, self._fragment, rows, left_on, right_on or left_on
        )
        return fragment_to_user(fragment), LanceSchema(merged)

    @overload
    def update_columns(
        self,
        data_obj: Any,
        left_on: str = "_rowid",
        right_on: str | None = None,
        schema: pa.Schema | None = None,
        *,
        with_offsets: Literal[False] = False,
    ) -> tuple[FragmentMetadata, list[int]]: ...

    @overload
    def update_columns(
        self,
        data_obj: Any,
        left_on: str = "_rowid",
        right_on: str | None = None,
        schema: pa.Schema | None = None,
        *,
        with_offsets: Literal[True],
    ) -> tuple[FragmentMetadata, list[int], bytes]: ...

    @checks_kinds
    def update_columns(
        self,
        data_obj: Any,
        left_on: str = "_rowid",
        right_on: str | None = None,
        schema: pa.Schema | None = None,
        *,
        with_offsets: bool = False,
    ) -> tuple[FragmentMetadata, list[int]] | tuple[FragmentMetadata, list[int], bytes]:
        """Write columns anew, with other values in the rows that are found by a key.

        Args:
            data_obj: The key, and the columns with their new values.
            left_on: The column of the fragment to find rows by.
            right_on: The column of `data_obj`; by default, of the same name.
            schema: The schema of the data, where they do not say it themselves.
            with_offsets: Whether to return the offsets of the rows that were found.

        Returns:
            The fragment with its new file, the ids of the fields that are in it, and the offsets
            as a Roaring bitmap, all of which `LanceOperation.Update` takes.
        """
        joined = ops.columns.from_join.Joined.of(
            ops.rows.read_rows_of(data_obj, schema), right_on or left_on
        )
        updated = ops.columns.update.update_fragment_columns(
            self._dataset.snapshot, self._fragment, left_on, joined
        )
        shown, field_ids = fragment_to_user(updated.fragment), list(updated.field_ids)
        if not with_offsets:
            return shown, field_ids
        return shown, field_ids, BitMap(updated.offsets).serialize()
