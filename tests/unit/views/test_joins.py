"""Views of joined tables equal their query after any history of the source and of the tables."""

import datetime as dt
import uuid

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lancelet
from lancelet.errors import ExpressionError, InvalidInputError
from lancelet.views.definition import Join
from lancelet.views.statement import parse_query

SALES = pa.schema([("id", pa.int64()), ("k", pa.int32()), ("shop", pa.string()), ("n", pa.int32())])
PRODUCTS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.int32())])
SHOPS = pa.schema([("code", pa.string()), ("city", pa.string())])

INNER = (
    "SELECT s.id, name, n * price AS total FROM source AS s JOIN products AS d ON s.k = d.id "
    "WHERE price > 2 OR n IS NULL"
)
LEFT = (
    "SELECT source.id, d.name, city, price IS NULL AS unknown FROM source "
    "LEFT JOIN products AS d ON d.id = k LEFT JOIN shops ON shop = shops.code "
    "WHERE n > 0 AND (price < 8 OR price IS NULL)"
)
GROUPS = (
    "SELECT city, name, count(*) AS rows, sum(n * price) AS total, max(price) AS most, "
    "min(n) AS low, avg(price) AS mean FROM source JOIN products AS d ON k = d.id "
    "LEFT JOIN shops AS t ON t.code = shop GROUP BY city, name"
)
QUERIES = (INNER, LEFT, GROUPS)

KEYS = st.none() | st.integers(0, 6)
CODES = st.sampled_from([None, "a", "b", "c"])
SALE = st.tuples(st.integers(0, 40), KEYS, CODES, st.none() | st.integers(-3, 9))
PRODUCT = st.tuples(KEYS, st.sampled_from([None, "x", "y"]), st.none() | st.integers(0, 9))
SHOP = st.tuples(CODES, st.sampled_from([None, "Rome", "Oslo"]))


def of_distinct_keys(rows):
    """Return rows with distinct keys; null keys may be repeated."""
    return list({(object() if row[0] is None else row[0]): row for row in rows}.values())


SALES_ROWS = st.lists(SALE, max_size=8)
PRODUCT_ROWS = st.lists(PRODUCT, max_size=5).map(of_distinct_keys)
SHOP_ROWS = st.lists(SHOP, max_size=3).map(of_distinct_keys)
NUMBERS = st.integers(0, 40)
TABLES = st.sampled_from(["sales", "products", "shops"])
CHANGES = st.one_of(
    st.tuples(st.just("append sales"), SALES_ROWS),
    st.tuples(st.just("upsert products"), PRODUCT_ROWS),
    st.tuples(st.just("upsert shops"), SHOP_ROWS),
    st.tuples(st.just("overwrite products"), PRODUCT_ROWS),
    st.tuples(st.just("delete"), TABLES, NUMBERS),
    st.tuples(st.just("update sales"), NUMBERS, st.integers(0, 6)),
    st.tuples(st.just("update products"), NUMBERS, st.integers(0, 9)),
    st.tuples(st.just("move products"), st.integers(0, 6), st.integers(10, 12)),
    st.tuples(st.just("compact"), TABLES),
    st.tuples(st.just("restore"), TABLES, st.integers(1, 12)),
    st.tuples(st.just("cleanup"), TABLES),
    st.tuples(st.just("refresh")),
    st.tuples(st.just("refresh")),
)


def table_of(rows, schema):
    columns = [
        pa.array([row[index] for row in rows], field.type) for index, field in enumerate(schema)
    ]
    return pa.table(columns, schema=schema)


def without_null_keys(rows):
    return [row for row in rows if row[0] is not None]


def upsert(dataset, rows, schema):
    merge = dataset.merge_insert(schema.names[0]).when_matched_update_all()
    merge.when_not_matched_insert_all().execute(table_of(without_null_keys(rows), schema))


def apply(tables, change):
    """Change a table; changes that its state does not allow do nothing."""
    match change:
        case ("append sales", rows):
            tables["sales"].insert(table_of(rows, SALES))
        case ("upsert products", rows):
            upsert(tables["products"], rows, PRODUCTS)
        case ("upsert shops", rows):
            upsert(tables["shops"], rows, SHOPS)
        case ("overwrite products", rows):
            lancelet.write_dataset(table_of(rows, PRODUCTS), tables["products"], mode="overwrite")
        case ("delete", name, number):
            tables[name].delete(f"_rowid % 3 = {number % 3}")
        case ("update sales", number, key):
            tables["sales"].update({"k": str(key)}, where=f"id >= {number}")
        case ("update products", number, price):
            tables["products"].update({"price": str(price)}, where=f"id % 3 = {number % 3}")
        case ("move products", old, new):
            if not tables["products"].count_rows(f"id = {new}"):
                tables["products"].update({"id": str(new)}, where=f"id = {old}")
        case ("compact", name):
            tables[name].optimize.compact_files()
        case ("restore", name, version):
            if version in [each["version"] for each in tables[name].versions()]:
                tables[name].checkout_version(version).restore()
        case ("cleanup", name):
            tables[name].cleanup_old_versions(older_than=dt.timedelta(0))
    for dataset in tables.values():
        dataset.checkout_latest()


def joined(tables):
    """Return the rows of all tables, with None for missing products and shops."""
    products = {row["id"]: row for row in tables["products"].to_table().to_pylist()}
    shops = {row["code"]: row for row in tables["shops"].to_table().to_pylist()}
    for sale in tables["sales"].to_table().to_pylist():
        product = None if sale["k"] is None else products.get(sale["k"])
        shop = None if sale["shop"] is None else shops.get(sale["shop"])
        yield sale, product, shop


def product_of(left, right):
    return None if left is None or right is None else left * right


def expected_inner(tables):
    return [
        (sale["id"], product["name"], product_of(sale["n"], product["price"]))
        for sale, product, _ in joined(tables)
        if product is not None
        and ((product["price"] is not None and product["price"] > 2) or sale["n"] is None)
    ]


def expected_left(tables):
    found = []
    for sale, product, shop in joined(tables):
        price = None if product is None else product["price"]
        if sale["n"] is not None and sale["n"] > 0 and (price is None or price < 8):
            name = None if product is None else product["name"]
            city = None if shop is None else shop["city"]
            found.append((sale["id"], name, city, price is None))
    return found


def expected_groups(tables):
    groups = {}
    for sale, product, shop in joined(tables):
        if product is not None:
            key = None if shop is None else shop["city"], product["name"]
            groups.setdefault(key, []).append((sale, product))
    found = []
    for (city, name), rows in groups.items():
        totals = [product_of(sale["n"], product["price"]) for sale, product in rows]
        totals = [each for each in totals if each is not None]
        prices = [product["price"] for _, product in rows if product["price"] is not None]
        numbers = [sale["n"] for sale, _ in rows if sale["n"] is not None]
        mean = sum(prices) / len(prices) if prices else None
        total = sum(totals) if totals else None
        most, low = max(prices, default=None), min(numbers, default=None)
        found.append((city, name, len(rows), total, most, low, mean))
    return found


EXPECTED = (expected_inner, expected_left, expected_groups)


def rows_of(view):
    return sorted(map(repr, (tuple(row.values()) for row in view.to_table().to_pylist())))


def check(views, tables):
    for view, expected in zip(views, EXPECTED, strict=True):
        assert rows_of(view) == sorted(map(repr, expected(tables)))


def create(rows, stable):
    name = f"memory://{uuid.uuid4().hex}"
    tables = {
        part: lancelet.write_dataset(
            table_of(own, schema),
            f"{name}-{part}",
            enable_stable_row_ids=is_stable,
            max_rows_per_file=3,
        )
        for (part, schema), own, is_stable in zip(
            {"sales": SALES, "products": PRODUCTS, "shops": SHOPS}.items(),
            rows,
            stable,
            strict=True,
        )
    }
    others = {each: tables[each] for each in ("products", "shops")}
    views = [
        tables["sales"].create_view(f"{name}-{number}", query, tables=others)
        for number, query in enumerate(QUERIES)
    ]
    return tables, views


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.tuples(SALES_ROWS, PRODUCT_ROWS, SHOP_ROWS),
    st.lists(CHANGES, max_size=10),
    st.tuples(*[st.sampled_from([True, True, True, False])] * 3),
)
def test_views_equal_their_query(rows, changes, stable):
    tables, views = create(rows, stable)
    check(views, tables)
    for change in [*changes, ("refresh",)]:
        if change == ("refresh",):
            for view in views:
                view.refresh()
                assert view.explain().kind == "none"
            check(views, tables)
        else:
            apply(tables, change)


def small():
    sales = [(1, 1, "a", 5), (2, 2, "a", 6), (3, None, "b", 7), (4, 9, None, 8)]
    sales += [(number, 3, "a", 1) for number in range(10, 20)]
    products = [(1, "x", 10), (2, "y", 20), (3, "z", 1), (None, "n", 3), (None, "m", 3)]
    return create((sales, products, [("a", "Rome"), ("b", "Oslo")]), (True,) * 3)


def test_plans_count_rows_that_refer_to_changed_rows():
    tables, (inner, left, _) = small()
    tables["products"].update({"price": "11"}, where="id = 2")
    tables["products"].insert(table_of([(9, "new", 4)], PRODUCTS))
    tables["sales"].insert(table_of([(5, 2, "a", 5)], SALES))
    plan = inner.explain()
    assert (plan.kind, plan.inserted, plan.updated, plan.deleted) == ("incremental", 1, 2, 0)
    assert plan.tables == {"d": (1, 3)}
    assert left.explain().tables == {"d": (1, 3), "shops": (1, 1)}
    assert inner.refresh() == plan
    assert inner.explain().kind == "none"
    assert {(5, "y", 55), (2, "y", 66), (4, "new", 32)} <= {
        tuple(row.values()) for row in inner.to_table().to_pylist()
    }


def test_one_commit_records_all_versions():
    tables, (_, left, groups) = small()
    tables["shops"].update({"city": "'Pisa'"}, where="code = 'b'")
    for view in (left, groups):
        before = view.dataset.version
        assert view.refresh().kind == "incremental"
        opened = lancelet.open_view(view.uri)
        assert opened.dataset.version == before + 1
        assert opened.explain().kind == "none"


@pytest.mark.parametrize("change", ["cleanup", "create"])
def test_unknown_changes_of_a_joined_table_lead_to_a_full_refresh(change):
    tables, (_, left, _) = small()
    if change == "cleanup":
        for number in range(3):
            tables["shops"].update({"city": f"'{number}'"}, where="code = 'b'")
        tables["shops"].cleanup_old_versions(older_than=dt.timedelta(0))
        assert left.refresh().kind == "full"
    else:
        uri = tables["shops"].uri
        lancelet.LanceDataset.drop(uri)
        lancelet.write_dataset(table_of([("a", "Bonn")], SHOPS), uri, enable_stable_row_ids=True)
        assert left.refresh().reason == "the joined table shops was created again"
    assert left.explain().kind == "none"


def test_repeated_keys_are_errors_with_the_key():
    tables, (inner, _, _) = small()
    tables["products"].insert(table_of([(2, "again", 4)], PRODUCTS))
    before = inner.dataset.version
    with pytest.raises(InvalidInputError, match="delete all but one of them") as error:
        inner.refresh()
    assert (error.value.facts["table"], error.value.facts["key"]) == ("d", "2")
    assert lancelet.open_view(inner.uri).dataset.version == before
    tables["products"].delete("name = 'again'")
    assert inner.refresh().kind == "incremental"


@pytest.mark.parametrize("number", [0, 2])
def test_repeated_keys_that_no_row_refers_to_are_errors(number):
    tables, views = small()
    tables["products"].insert(table_of([(77, "one", 4), (77, "two", 4)], PRODUCTS))
    with pytest.raises(InvalidInputError, match="the same key"):
        views[number].refresh()
    tables["products"].delete("name = 'two'")
    views[number].refresh()
    assert views[number].explain().kind == "none"


def test_keys_of_several_columns_are_joined():
    name = f"memory://{uuid.uuid4().hex}"
    sales = lancelet.write_dataset(
        {"a": [1, 1, 2], "b": ["x", "y", "x"]}, f"{name}-s", enable_stable_row_ids=True
    )
    prices = lancelet.write_dataset(
        {"a": [1, 2], "b": ["y", "x"], "p": [7, 8]}, f"{name}-p", enable_stable_row_ids=True
    )
    view = sales.create_view(
        f"{name}-v",
        "SELECT s.a, p FROM source s LEFT JOIN prices ON s.a = prices.a AND prices.b = s.b",
        tables={"prices": prices.uri},
    )
    assert view.to_table().to_pylist() == [
        {"a": 1, "p": None},
        {"a": 1, "p": 7},
        {"a": 2, "p": 8},
    ]
    prices.update({"b": "'x'"}, where="a = 1")
    assert view.refresh().updated == 2
    assert sorted(map(str, view.to_table()["p"].to_pylist())) == ["7", "8", "None"]


def test_a_view_of_a_table_joined_with_itself():
    name = f"memory://{uuid.uuid4().hex}"
    people = lancelet.write_dataset(
        {"id": [1, 2, 3], "boss": [None, 1, 1], "name": ["a", "b", "c"]},
        name,
        enable_stable_row_ids=True,
    )
    view = people.create_view(
        f"{name}-v",
        "SELECT source.id, b.name AS boss FROM source LEFT JOIN people AS b ON source.boss = b.id",
        tables={"people": people},
    )
    people.update({"name": "'z'"}, where="id = 1")
    plan = view.refresh(full=False)
    assert plan.reason == "more than half of the rows changed"
    assert sorted(map(str, view.to_table()["boss"].to_pylist())) == ["None", "z", "z"]


def test_functions_are_called_with_joined_rows():
    tables, _ = small()
    calls = []

    def label(name, number):
        calls.append(len(name))
        return [f"{a}{b}" for a, b in zip(name.to_pylist(), number.to_pylist(), strict=True)]

    view = tables["sales"].create_view(
        f"{tables['sales'].uri}-f",
        "SELECT label(d.name, n) AS text FROM source JOIN d ON k = d.id",
        tables={"d": tables["products"]},
        functions={"label": label},
    )
    calls.clear()
    tables["products"].update({"name": "'w'"}, where="id = 1")
    view.refresh(functions={"label": label})
    assert calls == [1] or sum(calls) == 1
    assert "w5" in view.to_table()["text"].to_pylist()


def test_row_columns_are_those_of_the_source():
    tables, _ = small()
    view = tables["sales"].create_view(
        f"{tables['sales'].uri}-r",
        "SELECT _rowid AS r, source._rowid + 1 AS next "
        "FROM source JOIN Products ON k = Products.id",
        tables={"products": tables["products"]},
    )
    tables["products"].update({"price": "2"}, where="id < 3")
    assert view.refresh().updated == 2
    assert {(0, 1), (1, 2)} <= {tuple(row.values()) for row in view.to_table().to_pylist()}


def test_names_are_resolved_to_tables():
    query = parse_query(
        "SELECT *, d.price AS p FROM source AS s LEFT OUTER JOIN d ON k = D.id WHERE s.n > name",
        ["k", "n"],
        tables={"d": ["id", "name", "price"]},
    )
    assert {each.name: each.value for each in query.columns} == {
        "k": "source.k",
        "n": "source.n",
        "id": "d.id",
        "name": "d.name",
        "price": "d.price",
        "p": "d.price",
    }
    assert query.filter == "source.n > d.name"
    assert query.joins == (Join("d", "d", (("source.k", "d.id"),), is_left=True),)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT id FROM source JOIN d ON k = d.id", "write source.id or d.id"),
        ("SELECT missing FROM source JOIN d ON k = d.id", "no table of the query has a column"),
        ("SELECT k FROM source JOIN e ON k = e.id", "pass the joined table"),
        ("SELECT k FROM source JOIN d ON k < d.id", "for example ON source.k = d.id"),
        ("SELECT k FROM source JOIN d ON k = source.id", "for example ON source.k = d.id"),
        ("SELECT k FROM source JOIN d AS source ON k = d.id", "rename one with AS"),
        ("SELECT k FROM source RIGHT JOIN d ON k = d.id", "use JOIN or LEFT JOIN"),
        ("SELECT k FROM source JOIN d USING (id)", "write ON"),
        ("SELECT x.* FROM source JOIN d ON k = d.id", "no such table"),
        ("SELECT count(k) FROM source", r"name the column: count\(k\) AS"),
        ("SELECT count(DISTINCT k) AS n FROM source", "count the rows of that view"),
    ],
)
def test_other_joins_are_rejected(query, message):
    with pytest.raises(ExpressionError, match=message):
        parse_query(query, ["id", "k"], tables={"d": ["id", "name"]})
