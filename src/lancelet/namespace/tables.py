"""Namespace operations on the rows, columns and indices of tables.

Each operation locates the table by id and calls the corresponding method of the dataset.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from lance_namespace import (
    AlterTableAddColumnsRequest,
    AlterTableAddColumnsResponse,
    AlterTableAlterColumnsRequest,
    AlterTableAlterColumnsResponse,
    AlterTableDropColumnsRequest,
    AlterTableDropColumnsResponse,
    AnalyzeTableQueryPlanRequest,
    CountTableRowsRequest,
    CountTableRowsResponse,
    CreateTableIndexRequest,
    CreateTableIndexResponse,
    DeleteFromTableRequest,
    DeleteFromTableResponse,
    DescribeTableIndexStatsRequest,
    DescribeTableIndexStatsResponse,
    DropTableIndexRequest,
    DropTableIndexResponse,
    ExplainTableQueryPlanRequest,
    InsertIntoTableRequest,
    InsertIntoTableResponse,
    InvalidInputError,
    ListTableIndicesRequest,
    ListTableIndicesResponse,
    MergeInsertIntoTableRequest,
    MergeInsertIntoTableResponse,
    QueryTableRequest,
    QueryTableResponse,
    TableColumnNotFoundError,
    TableIndexAlreadyExistsError,
    TableIndexNotFoundError,
    UnsupportedOperationError,
    UpdateTableRequest,
    UpdateTableResponse,
    UpdateTableSchemaMetadataRequest,
    UpdateTableSchemaMetadataResponse,
)
from lance_namespace_urllib3_client.models import IndexContent

from lancelet.dataset.write.write import write_dataset
from lancelet.errors import AlreadyExistsError, FieldNotFoundError, IndexNotFoundError
from lancelet.namespace.operations import Operations, read_stream, transaction_id_of
from lancelet.namespace.types import parse_type
from lancelet.search import full_text

_VECTOR_OPTIONS: Final = {"num_partitions", "num_sub_vectors", "num_bits", "sample_rate"}
_TEXT_OPTIONS: Final = {
    "with_position",
    "base_tokenizer",
    "language",
    "max_token_length",
    "lower_case",
    "stem",
    "remove_stop_words",
    "ascii_folding",
}


class TableOperations(Operations):
    """Operations that read and change tables."""

    # --- rows ----------------------------------------------------------------------------------

    def count_table_rows(self, request: CountTableRowsRequest) -> CountTableRowsResponse:
        """Return the number of rows, optionally matching a predicate."""
        dataset = self._dataset("count_table_rows", request)
        return CountTableRowsResponse(count=dataset.count_rows(request.predicate))

    def insert_into_table(
        self, request: InsertIntoTableRequest, request_data: bytes
    ) -> InsertIntoTableResponse:
        """Append rows in the Arrow IPC stream format, or overwrite the table with them."""
        path = self._begin("insert_into_table", request)
        rows = read_stream(request_data, "insert_into_table")
        location, options = self._location_of(path)
        mode = (request.mode or "append").lower()
        if mode not in {"append", "overwrite"}:
            raise InvalidInputError(f"Invalid input: mode {request.mode}")
        dataset = write_dataset(rows, location, mode=mode, storage_options=options or None)
        return InsertIntoTableResponse(num_inserted_rows=rows.num_rows, version=dataset.version)

    def merge_insert_into_table(
        self, request: MergeInsertIntoTableRequest, request_data: bytes
    ) -> MergeInsertIntoTableResponse:
        """Update matching rows, and insert new ones."""
        dataset = self._dataset("merge_insert_into_table", request)
        merge = dataset.merge_insert(request.on)
        if request.when_matched_update_all:
            merge = merge.when_matched_update_all(request.when_matched_update_all_filt)
        if request.when_not_matched_insert_all:
            merge = merge.when_not_matched_insert_all()
        if request.when_not_matched_by_source_delete:
            condition = request.when_not_matched_by_source_delete_filt
            merge = merge.when_not_matched_by_source_delete(condition)
        if request.use_index is not None:
            merge = merge.use_index(request.use_index)
        done = merge.execute(read_stream(request_data, "merge_insert_into_table"))
        return MergeInsertIntoTableResponse(
            num_updated_rows=done["num_updated_rows"],
            num_inserted_rows=done["num_inserted_rows"],
            num_deleted_rows=done["num_deleted_rows"],
            version=dataset.version,
        )

    def update_table(self, request: UpdateTableRequest) -> UpdateTableResponse:
        """Set columns to expressions in rows that match a predicate."""
        dataset = self._dataset("update_table", request)
        updates = dict(request.updates)
        done = dataset.update(updates, where=request.predicate)
        return UpdateTableResponse(updated_rows=done["num_rows_updated"], version=dataset.version)

    def delete_from_table(self, request: DeleteFromTableRequest) -> DeleteFromTableResponse:
        """Delete rows that match a predicate."""
        dataset = self._dataset("delete_from_table", request)
        dataset.delete(request.predicate)
        return DeleteFromTableResponse(version=dataset.version)

    def query_table(self, request: QueryTableRequest) -> QueryTableResponse:
        """Return rows in the Arrow IPC file format, as `data` of the response."""
        table = self._dataset("query_table", request).scanner(**scan_arguments(request)).to_table()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        return QueryTableResponse(data=sink.getvalue().to_pybytes())

    def explain_table_query_plan(self, request: ExplainTableQueryPlanRequest) -> str:
        """Return the plan of a query."""
        dataset = self._dataset("explain_table_query_plan", request)
        scanner = dataset.scanner(**scan_arguments(request.query))
        return scanner.explain_plan(bool(request.verbose))

    def analyze_table_query_plan(self, request: AnalyzeTableQueryPlanRequest) -> str:
        """Run a query, and return its plan with measurements."""
        dataset = self._dataset("analyze_table_query_plan", request)
        return dataset.scanner(**scan_arguments(request)).analyze_plan()

    # --- columns -------------------------------------------------------------------------------

    def alter_table_add_columns(
        self, request: AlterTableAddColumnsRequest
    ) -> AlterTableAddColumnsResponse:
        """Add columns computed by expressions."""
        dataset = self._dataset("alter_table_add_columns", request)
        computed = {column.name: column.expression for column in request.new_columns}
        if None in computed.values():
            raise UnsupportedOperationError("Unsupported: new columns require an expression")
        dataset.add_columns(computed)
        return AlterTableAddColumnsResponse(version=dataset.version)

    def alter_table_alter_columns(
        self, request: AlterTableAlterColumnsRequest
    ) -> AlterTableAlterColumnsResponse:
        """Rename columns, or change their types or nullability."""
        dataset = self._dataset("alter_table_alter_columns", request)
        alterations: list[Any] = []
        for change in request.alterations:
            alteration: dict[str, Any] = {
                "path": change.path,
                "name": change.rename,
                "nullable": change.nullable,
            }
            if change.data_type is not None:
                alteration["data_type"] = parse_type(change.data_type)
            alterations.append({name: own for name, own in alteration.items() if own is not None})
        dataset.alter_columns(*alterations)
        return AlterTableAlterColumnsResponse(version=dataset.version)

    def alter_table_drop_columns(
        self, request: AlterTableDropColumnsRequest
    ) -> AlterTableDropColumnsResponse:
        """Drop columns."""
        dataset = self._dataset("alter_table_drop_columns", request)
        try:
            dataset.drop_columns(request.columns)
        except FieldNotFoundError as error:
            raise TableColumnNotFoundError(f"Table column not found: {error}") from error
        return AlterTableDropColumnsResponse(version=dataset.version)

    def update_table_schema_metadata(
        self, request: UpdateTableSchemaMetadataRequest
    ) -> UpdateTableSchemaMetadataResponse:
        """Replace the metadata of the schema."""
        dataset = self._dataset("update_table_schema_metadata", request)
        found = dataset.update_schema_metadata(request.metadata or {}, replace=True)
        return UpdateTableSchemaMetadataResponse(metadata=dict(found))

    # --- indices -------------------------------------------------------------------------------

    def create_table_index(self, request: CreateTableIndexRequest) -> CreateTableIndexResponse:
        """Build a scalar, full-text or vector index."""
        dataset = self._dataset("create_table_index", request)
        of_vectors = request.index_type.upper().startswith("IVF")
        options = request.model_dump(include=_VECTOR_OPTIONS if of_vectors else _TEXT_OPTIONS)
        options = {name: value for name, value in options.items() if value is not None}
        if of_vectors:
            options["metric"] = request.distance_type or "l2"
        build = dataset.create_index if of_vectors else dataset.create_scalar_index
        try:
            build(request.column, request.index_type, request.name, replace=False, **options)
        except AlreadyExistsError as error:
            raise TableIndexAlreadyExistsError(f"Table index already exists: {error}") from error
        except FieldNotFoundError as error:
            raise TableColumnNotFoundError(f"Table column not found: {error}") from error
        return CreateTableIndexResponse(transaction_id=transaction_id_of(dataset))

    def create_table_scalar_index(
        self, request: CreateTableIndexRequest
    ) -> CreateTableIndexResponse:
        """Build a scalar index."""
        return self.create_table_index(request)

    def list_table_indices(self, request: ListTableIndicesRequest) -> ListTableIndicesResponse:
        """Return the indices with their coverage."""
        dataset = self._dataset("list_table_indices", request)
        rows = dataset.count_rows()
        found = [
            IndexContent(
                index_name=index.name,
                index_uuid=index.segments[0].uuid,
                columns=index.field_names,
                status="SUCCEEDED",
                index_type=index.index_type,
                type_url=index.type_url,
                num_indexed_rows=index.num_rows_indexed,
                num_unindexed_rows=max(0, rows - index.num_rows_indexed),
                size_bytes=index.total_size_bytes,
                num_segments=len(index.segments),
                created_at=index.segments[0].created_at,
                index_version=index.segments[0].index_version,
                index_details=json.dumps(index.details),
            )
            for index in dataset.describe_indices()
        ]
        return ListTableIndicesResponse(indexes=found)

    def describe_table_index_stats(
        self, request: DescribeTableIndexStatsRequest
    ) -> DescribeTableIndexStatsResponse:
        """Return the numbers of indexed and unindexed rows of an index."""
        dataset = self._dataset("describe_table_index_stats", request)
        name = request.index_name or ""
        try:
            found = dataset.stats.index_stats(name)
        except IndexNotFoundError as error:
            raise TableIndexNotFoundError(f"Table index not found: {name}") from error
        first: Mapping[str, Any] = (found.get("indices") or [{}])[0]
        return DescribeTableIndexStatsResponse(
            distance_type=first.get("metric_type"),
            index_type=found["index_type"],
            num_indexed_rows=found["num_indexed_rows"],
            num_unindexed_rows=found["num_unindexed_rows"],
            num_indices=found["num_indices"],
        )

    def drop_table_index(self, request: DropTableIndexRequest) -> DropTableIndexResponse:
        """Drop an index."""
        dataset = self._dataset("drop_table_index", request)
        name = request.index_name or ""
        try:
            dataset.drop_index(name)
        except IndexNotFoundError as error:
            raise TableIndexNotFoundError(f"Table index not found: {name}") from error
        return DropTableIndexResponse(transaction_id=transaction_id_of(dataset))


def scan_arguments(query: QueryTableRequest | AnalyzeTableQueryPlanRequest) -> dict[str, Any]:
    """Return the scan arguments of a query."""
    vector = query.vector.single_vector or query.vector.multi_vector
    columns: Any = None
    if query.columns is not None:
        columns = query.columns.column_names or query.columns.column_aliases
    arguments: dict[str, Any] = {
        "columns": columns,
        "filter": query.filter,
        "offset": query.offset,
        "prefilter": query.prefilter,
        "with_row_id": query.with_row_id,
        "fast_search": query.fast_search,
    }
    if vector:
        return {**arguments, "nearest": _nearest(query, vector)}
    if query.full_text_query is not None:
        arguments["full_text_query"] = _text_query(query.full_text_query)
    return {**arguments, "limit": query.k or None}


def _nearest(query: Any, vector: Any) -> dict[str, Any]:
    nearest = {
        "column": query.vector_column or "vector",
        "q": vector,
        "k": query.k,
        "metric": query.distance_type,
        "nprobes": query.nprobes,
        "minimum_nprobes": query.minimum_nprobes,
        "maximum_nprobes": query.maximum_nprobes,
        "refine_factor": query.refine_factor,
        "ef": query.ef,
        "use_index": not query.bypass_vector_index,
    }
    if query.lower_bound is not None or query.upper_bound is not None:
        nearest["distance_range"] = (query.lower_bound, query.upper_bound)
    return nearest


def _text_query(query: Any) -> Any:
    if query.string_query is not None:
        return {"query": query.string_query.query, "columns": query.string_query.columns}
    if query.structured_query is None:
        raise InvalidInputError("Invalid input: a full-text search requires a query")
    return structured_query(query.structured_query.query)


def structured_query(query: Any) -> full_text.FullTextQuery:
    """Convert a structured query of the namespace API."""
    if query.match is not None:
        return _match(query.match)
    if query.phrase is not None:
        phrase = query.phrase
        return full_text.PhraseQuery(phrase.terms, phrase.column, slop=phrase.slop or 0)
    if query.boost is not None:
        weight = query.boost.negative_boost
        return full_text.BoostQuery(
            structured_query(query.boost.positive),
            structured_query(query.boost.negative),
            negative_boost=0.5 if weight is None else weight,
        )
    if query.multi_match is not None:
        matches = query.multi_match.match_queries
        return full_text.BooleanQuery([(full_text.Occur.SHOULD, _match(each)) for each in matches])
    if query.boolean is None:
        raise InvalidInputError("Invalid input: a structured query requires a query kind")
    members = (
        (full_text.Occur.MUST, query.boolean.must),
        (full_text.Occur.SHOULD, query.boolean.should),
        (full_text.Occur.MUST_NOT, query.boolean.must_not),
    )
    return full_text.BooleanQuery(
        [(occur, structured_query(each)) for occur, own in members for each in own]
    )


def _match(query: Any) -> full_text.MatchQuery:
    given = {
        "boost": query.boost,
        "fuzziness": query.fuzziness,
        "max_expansions": query.max_expansions,
        "prefix_length": query.prefix_length,
    }
    if query.operator is not None:
        given["operator"] = full_text.FullTextOperator(query.operator.upper())
    options = {name: value for name, value in given.items() if value is not None}
    return full_text.MatchQuery(query.terms, query.column, **options)
