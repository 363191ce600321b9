"""Run every block of the Spark pages in the session of the tests, and compare the output."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE_TOOL = runpy.run_path(str(ROOT / "tools" / "page_outputs.py"))
PAGES = [
    page
    for page in sorted((ROOT / "docs").rglob("*.md"))
    if PAGE_TOOL["needs_spark"](page) and PAGE_TOOL["BLOCK"].search(page.read_text())
]
NEW_SESSION = 'SparkSession.builder.master("local[2]").getOrCreate()'
RELATIVE_NAME = re.compile(r"(['\"`])(\w+\.lance|(?:local_)?checkpoint(?!Location)\w*|notes)\1")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_runs_and_prints_the_output_it_shows(page, spark, tmp_path):
    def with_absolute_names(code):
        # Workers run in another folder. A classic session cannot be beside one of Connect.
        code = code.replace(NEW_SESSION, "spark")
        return RELATIVE_NAME.sub(rf"\1{tmp_path}/\2\1", code)

    before = views(spark)
    try:
        examples = PAGE_TOOL["run_page"](
            page.read_text(), page, namespace={"spark": spark}, rewrite=with_absolute_names
        )
    finally:
        for name in views(spark) - before:
            spark.catalog.dropTempView(name)
    assert [(each.shown, each.printed) for each in examples if not each.matches] == []


def views(spark):
    return {each.name for each in spark.catalog.listTables() if each.isTemporary}
