"""What a query of a namespace asks of a scan."""

from __future__ import annotations

from typing import Any

from lance_namespace import AnalyzeTableQueryPlanRequest, InvalidInputError, QueryTableRequest

from lancelet.query import full_text


def scan_arguments(query: QueryTableRequest | AnalyzeTableQueryPlanRequest) -> dict[str, Any]:
    """Return the arguments of the scan that a query asks for."""
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


def _text_query(asked: Any) -> Any:
    if asked.string_query is not None:
        return {"query": asked.string_query.query, "columns": asked.string_query.columns}
    if asked.structured_query is None:
        raise InvalidInputError("Invalid input: a search for text has a query")
    return structured_query(asked.structured_query.query)


def structured_query(asked: Any) -> full_text.FullTextQuery:
    """Return a query of our own for one of the namespace's."""
    if asked.match is not None:
        return _match(asked.match)
    if asked.phrase is not None:
        phrase = asked.phrase
        return full_text.PhraseQuery(phrase.terms, phrase.column, slop=phrase.slop or 0)
    if asked.boost is not None:
        weight = asked.boost.negative_boost
        return full_text.BoostQuery(
            structured_query(asked.boost.positive),
            structured_query(asked.boost.negative),
            negative_boost=0.5 if weight is None else weight,
        )
    if asked.multi_match is not None:
        matches = asked.multi_match.match_queries
        return full_text.BooleanQuery([(full_text.Occur.SHOULD, _match(each)) for each in matches])
    if asked.boolean is None:
        raise InvalidInputError("Invalid input: a query of text is of some kind")
    members = (
        (full_text.Occur.MUST, asked.boolean.must),
        (full_text.Occur.SHOULD, asked.boolean.should),
        (full_text.Occur.MUST_NOT, asked.boolean.must_not),
    )
    return full_text.BooleanQuery(
        [(occur, structured_query(each)) for occur, own in members for each in own]
    )


def _match(asked: Any) -> full_text.MatchQuery:
    given = {
        "boost": asked.boost,
        "fuzziness": asked.fuzziness,
        "max_expansions": asked.max_expansions,
        "prefix_length": asked.prefix_length,
    }
    if asked.operator is not None:
        given["operator"] = full_text.FullTextOperator(asked.operator.upper())
    known = {name: value for name, value in given.items() if value is not None}
    return full_text.MatchQuery(asked.terms, asked.column, **known)
