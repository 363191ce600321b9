"""Paths of catalogs whose databases have no child namespaces."""

import pytest
from lance_namespace import InvalidInputError, UnsupportedOperationError

from lancelet.namespace.external import database_and_table, database_of


def test_a_path_has_a_database_and_a_table():
    assert database_of(("sales",), "Glue") == "sales"
    assert database_and_table(("sales", "orders"), "Glue") == ("sales", "orders")


@pytest.mark.parametrize("path", [(), ("sales", "europe")])
def test_databases_have_no_children(path):
    with pytest.raises(UnsupportedOperationError, match="Glue database has no child namespaces"):
        database_of(path, "Glue")


@pytest.mark.parametrize("path", [("orders",), ("sales", "europe", "orders")])
def test_tables_are_in_a_database(path):
    with pytest.raises(InvalidInputError, match="Hive table has a database and a name"):
        database_and_table(path, "Hive")
