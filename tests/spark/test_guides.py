"""Every block of the pages about Spark runs, page by page, in the session of the tests."""

import re
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).resolve().parents[2] / "docs" / "guide" / "spark").glob("*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page):
    return BLOCK.findall(page.read_text())


@pytest.mark.parametrize("page", [each for each in PAGES if blocks(each)], ids=lambda p: p.stem)
def test_page_runs_from_the_top(page, spark, tmp_path):
    namespace = {"__name__": "__documentation__", "spark": spark}
    before = views(spark)
    try:
        for block in blocks(page):
            # Names of tables in the pages are relative; workers run elsewhere.
            placed = re.sub(
                r"(['\"`])(\w+\.lance|checkpoint(?!Location)\w*|notes)\1",
                rf"\1{tmp_path}/\2\1",
                block,
            )
            exec(compile(placed, str(page), "exec"), namespace)
    finally:
        for name in views(spark) - before:
            spark.catalog.dropTempView(name)


def views(spark):
    return {each.name for each in spark.catalog.listTables() if each.isTemporary}
