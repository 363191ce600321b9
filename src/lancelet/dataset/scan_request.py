"""What a caller asks of a scan, under pylance's names, as one frozen value.

`scanner`, `to_table`, `to_batches` and `to_pandas` of datasets and fragments all take these
arguments. Each makes a request of them, and the request makes the scanner.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import compress, repeat
from operator import is_not
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from lancelet.dataset.scanner import SETTERS, LanceScanner, ScannerBuilder

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset

F = TypeVar("F", bound=Callable[..., Any])


class ScanRequest(NamedTuple):
    """The arguments of a scan; None leaves the choice to the dataset's defaults.

    Attributes:
        columns: Names of columns, or expressions by the name each shall have.
        filter: SQL text or an expression of pyarrow; rows for which it is true are returned.
        limit: The most rows to return.
        offset: How many of the first rows to leave out.
        nearest: A search for vectors.
        batch_size: The most rows of a batch.
        batch_size_bytes: The most bytes of a batch, about.
        batch_readahead: Has no effect: reading ahead is bounded by bytes.
        fragment_readahead: Has no effect, for the same reason.
        scan_in_order: Has no effect: rows always come in order.
        fragments: The fragments to read.
        index_segments: The segments of an index of vectors that are searched; rows of others, and
            rows that are not indexed, are not found.
        full_text_query: A search for text.
        prefilter: Has no effect on a scan without a search.
        with_row_id: Whether to return a column `_rowid`.
        with_row_address: Whether to return a column `_rowaddr`.
        use_stats: Whether statistics may rule out rows.
        fast_search: Whether to leave out rows that an index in use does not cover.
        io_buffer_size: Has no effect: what is read ahead is bounded by the work in flight.
        late_materialization: Has no effect: what a filter does not need is read for the rows
            that match.
        blob_handling: What blob columns are read as: `blobs_descriptions`, which says where the
            bytes are, or `all_binary`, the bytes.
        use_scalar_index: Whether indices may be used.
        include_deleted_rows: Whether to return deleted rows too, with a null row id.
        scan_stats_callback: Called with what was read when the scan has ended.
        strict_batch_size: Whether every batch but the last must be full.
        order_by: What to sort by.
        disable_scoring_autoprojection: Has no effect on a scan without a search.
        row_addr_allowlist: The rows to return at most, as `serialize_row_addrs` makes them.
        row_addr_blocklist: Rows that are not returned, in the same form.
        memory_limit: The bytes that the scan may take, about, beside what it returned.
    """

    columns: Sequence[str] | Mapping[str, str] | None = None
    filter: Any = None
    limit: int | None = None
    offset: int | None = None
    nearest: Mapping[str, Any] | None = None
    batch_size: int | None = None
    batch_size_bytes: int | None = None
    batch_readahead: int | None = None
    fragment_readahead: int | None = None
    scan_in_order: bool | None = None
    fragments: Sequence[Any] | None = None
    index_segments: Sequence[Any] | None = None
    full_text_query: Any = None
    prefilter: bool | None = None
    with_row_id: bool | None = None
    with_row_address: bool | None = None
    use_stats: bool | None = None
    fast_search: bool | None = None
    io_buffer_size: int | None = None
    late_materialization: bool | Sequence[str] | None = None
    blob_handling: str | None = None
    use_scalar_index: bool | None = None
    include_deleted_rows: bool | None = None
    scan_stats_callback: Any = None
    strict_batch_size: bool | None = None
    order_by: str | Sequence[Any] | None = None
    disable_scoring_autoprojection: bool | None = None
    row_addr_allowlist: bytes | None = None
    row_addr_blocklist: bytes | None = None
    memory_limit: int | None = None

    @staticmethod
    def split(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the options that a request knows, and the others."""
        known = ScanRequest._fields
        ours = {name: value for name, value in options.items() if name in known}
        return ours, {name: value for name, value in options.items() if name not in known}

    def scanner(self, dataset: LanceDataset) -> LanceScanner:
        """Return the scanner of a dataset."""
        # Every scan passes here, with a few of the many arguments, so no bytecode runs for others.
        wanted = dict(
            compress(zip(_SETTER_OF_EACH, self, strict=True), map(is_not, self, repeat(None)))
        )
        lists = wanted.pop("row_addr_allowlist", None), wanted.pop("row_addr_blocklist", None)
        builder = ScannerBuilder(dataset).apply_defaults(wanted)
        if lists != (None, None):
            builder.row_addr_prefilter(*lists)
        return builder.to_scanner()


_SETTER_OF_EACH: Final = tuple(SETTERS.get(name, name) for name in ScanRequest._fields)


def shows_arguments(positional: str, named: str, *, takes_more: bool = False) -> Callable[[F], F]:
    """Give a function that passes its arguments on the signature that callers may look at.

    Types are those of `ScanRequest`, and defaults None, but for arguments that the function names
    itself. With `takes_more` it shows that it takes others, too.

    >>> @shows_arguments("limit", "prefilter")
    ... def read(self, *arguments, **options): ...
    >>> str(inspect.signature(read))
    "(self, limit: 'int | None' = None, *, prefilter: 'bool | None' = None)"
    """

    def show(function: F) -> F:
        own = inspect.signature(function)
        kind = inspect.Parameter
        more = [kind("kwargs", kind.VAR_KEYWORD, annotation="Any")]

        def option(name: str, where: Any) -> inspect.Parameter:
            types = ScanRequest.__annotations__
            given = own.parameters.get(name) or kind(
                name, where, default=None, annotation=types[name].__forward_arg__
            )
            return given.replace(kind=where)

        shown = [
            own.parameters["self"],
            *(option(name, kind.POSITIONAL_OR_KEYWORD) for name in positional.split()),
            *(option(name, kind.KEYWORD_ONLY) for name in named.split()),
            *(more if takes_more else []),
        ]
        function.__signature__ = own.replace(parameters=shown)  # type: ignore[attr-defined]  # functions take attributes
        return function

    return show
