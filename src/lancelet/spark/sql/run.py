"""SQL over Lance tables: `sql(spark, text)`, which extends the SQL of Spark.

sql(spark, "SELECT count(*) FROM lance.`/data/orders` WHERE price > :least", least=10)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from lancelet.spark.sql import changes, definitions, listing, upkeep
from lancelet.spark.sql.names import attached, views_in
from lancelet.spark.sql.parser import StatementParser
from lancelet.spark.sql.query import plan_query
from lancelet.spark.sql.session import Session
from lancelet.spark.sql.source import Source

Handler = Callable[[Session, StatementParser], DataFrame | None]

_HANDLERS: Final[Mapping[str, tuple[Handler, ...]]] = {
    "INSERT": (changes.insert,),
    "UPDATE": (changes.update,),
    "DELETE": (changes.delete,),
    "MERGE": (changes.merge,),
    "TRUNCATE": (changes.truncate,),
    "CREATE": (upkeep.create_index, upkeep.create_ref, definitions.create_view, definitions.create),
    "REPLACE": (definitions.create,),
    "DROP": (upkeep.drop_ref, definitions.drop),
    "ALTER": (definitions.alter,),
    "DESCRIBE": (listing.describe,),
    "DESC": (listing.describe,),
    "SHOW": (listing.show,),
    "EXPLAIN": (listing.explain,),
    "OPTIMIZE": (upkeep.optimize,),
    "VACUUM": (upkeep.vacuum,),
    "RESTORE": (upkeep.restore,),
    "REFRESH": (upkeep.refresh,),
}
"""Functions that run a statement, by its first word; they return None if no table is Lance."""


def sql(spark: SparkSession, text: str, **parameters: Any) -> DataFrame:
    """Run an SQL statement on Lance tables and return its result.

    A table is named by its path, as ``lance.`/data/t` ``, by its name in an attached namespace, as
    `lake.db.t`, or, without Connect, by a view created here with `USING lance`. The suffixes
    `@branch`, `VERSION AS OF` and `TIMESTAMP AS OF` select a version. Other statements are passed
    to Spark unchanged.

    Args:
        spark: The Spark session.
        text: One statement; the guide has the grammar.
        parameters: Values of `:name`, and data frames for `{name}`.
    """
    frames = {name: each for name, each in parameters.items() if isinstance(each, DataFrame)}
    values = {name: each for name, each in parameters.items() if name not in frames}
    session = Session(spark, values, frames)
    source = Source(text)
    if source.tokens:
        for handler in _HANDLERS.get(source.tokens[0].word, ()):
            done = handler(
                session, StatementParser(source, attached(spark), views_in(spark, source))
            )
            if done is not None:
                return done
    return plan_query(session, source).run()
