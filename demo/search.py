"""Indices and searches of the demo: by value, by words, by vectors, and by words and vectors."""

from __future__ import annotations

from functools import partial

import data
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scene import Demo, expect, stored_bytes

import lancelet
from lancelet import spark as ls

NEIGHBOURS = 5
QUERIES = 200
HITS = 5
WORDS = "river stone"
LOOKED_FOR = "foxes jump over lazy dogs"
PARTITIONS = 32
INDEX_TASKS = 4


def index_orders(demo: Demo) -> None:
    """Build indices in tasks, a segment for each group of fragments."""
    kinds = {
        "customer": ("BTREE", {}),
        "comment": ("INVERTED", {}),
        "embedding": ("IVF_SQ", {"num_partitions": PARTITIONS}),
    }
    size = stored_bytes(demo.table) // (len(kinds) * INDEX_TASKS)
    for column, (kind, parameters) in kinds.items():
        with demo.report.step(f"index {column}, {kind}") as step:
            step.job(
                ls.create_index(
                    demo.table,
                    column,
                    kind,
                    metric="cosine",
                    parameters=parameters,
                    bytes_per_task=size,
                    spark=demo.spark,
                )
            )


def search_orders(demo: Demo) -> None:
    """Find the orders of a customer, by looking at all and by asking an index."""
    table = lancelet.dataset(demo.table)
    customer = table.take([0], columns=["customer"])["customer"][0]
    by_value = partial(table.to_table, columns=["id"], filter=f"customer = {customer}")
    with demo.report.step("find a customer by scan") as step:
        scanned = by_value(use_scalar_index=False)
        step.rows = len(scanned)
    with demo.report.step("find a customer by index") as step:
        found = by_value()
        step.rows = len(found)
    order = [("id", "ascending")]
    expect("rows by index", found.sort_by(order).equals(scanned.sort_by(order)), True)


def search_words(demo: Demo) -> None:
    """Find orders by words, by a vector, and by both."""
    table = lancelet.dataset(demo.table)
    demo.report.looked_for = f"the words '{WORDS}', vectors near that of '{LOOKED_FOR}', or both"
    comment = pa.record_batch({"comment": [LOOKED_FOR]})
    wanted = data.embed_comments(comment, data.word_vectors()).column(0)[0]
    near = {"column": "embedding", "q": wanted, "k": HITS, "refine_factor": 8}
    by_distance = {**near, "use_index": False, "metric": "cosine"}
    exact = table.to_table(columns=["id", "_distance"], nearest=by_distance)["_distance"]
    columns = ["id", "comment"]
    searches = {
        "text": lambda: table.to_table([*columns, "_score"], full_text_query=WORDS, limit=HITS),
        "vector": lambda: table.to_table([*columns, "_distance"], nearest=near),
        "both": lambda: table.hybrid_search(WORDS, near, HITS, columns=columns),
    }
    for name, search in searches.items():
        with demo.report.step(f"search by {name}") as step:
            rows = search().to_pylist()
            step.rows = len(rows)
        demo.report.found[f"by {name}"] = [tuple(row.values()) for row in rows]
    for _, comment, _ in demo.report.found["by text"]:
        expect("all words are found", set(WORDS.split()) <= set(comment.split()), True)
    distances = [row[2] for row in demo.report.found["by vector"]]
    expect("distances by index", np.allclose(distances, exact.to_numpy(), atol=1e-5), True)
    expect("rows by both", len(demo.report.found["by both"]), HITS)


def search_many(demo: Demo) -> None:
    """Spread queries over tasks: what is nearest to the embeddings of some orders."""
    table = lancelet.dataset(demo.table)
    places = np.linspace(0, table.count_rows() - 1, QUERIES, dtype=np.int64)
    # Orders that came late have no embedding yet.
    queries = table.take(places, columns=["embedding"])["embedding"].drop_null().combine_chunks()
    matrix = queries.flatten().to_numpy().reshape(-1, data.EMBEDDING)
    with demo.report.step(f"search {QUERIES} vectors, Spark") as step:
        step.rows = ls.search(
            demo.spark, demo.table, matrix, HITS, column="embedding", columns=["id", "_distance"]
        ).count()
    expect("rows found", step.rows, len(matrix) * HITS)


def search_digits(demo: Demo) -> None:
    """Tell digits by their nearest neighbours, each digit of the queries left out itself."""
    table = lancelet.dataset(demo.digits)
    queries = table.to_table().take(pa.array(np.arange(0, table.count_rows(), 9)[:QUERIES]))
    hits = 0
    with demo.report.step("find similar digits") as step:
        for row in queries.to_pylist():
            wish = {"column": "embedding", "q": np.float32(row["embedding"]), "k": NEIGHBOURS + 1}
            found = table.to_table(columns=["id", "label", "pixels"], nearest=wish)
            others = found.filter(pc.not_equal(found["id"], row["id"])).to_pylist()
            hits += others[0]["label"] == row["label"]
            if len(demo.report.similar) < 6:
                similar = [each["pixels"] for each in others[:NEIGHBOURS]]
                demo.report.similar.append([row["pixels"], *similar])
        step.rows = len(queries)
        step.note = f"{hits} of {len(queries)} have the same label"
