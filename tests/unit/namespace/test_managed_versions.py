"""Tables whose versions a namespace decides: ours and pylance's, through each of the libraries."""

import lance
import lance.namespace
import lance_namespace as ln
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import CommitOutcomeUnknownError, DatasetNotFoundError, VersionNotFoundError
from lancelet.namespace import DirectoryNamespace

ID = ["w", "t"]
ROWS = pa.table({"a": [1, 2]})
KINDS = [DirectoryNamespace, lance.namespace.DirectoryNamespace]
LIBRARIES = [lancelet, lance]


@pytest.fixture(params=KINDS, ids=["ours", "theirs"])
def namespace(request, tmp_path):
    made = request.param(
        root=str(tmp_path),
        table_version_tracking_enabled="true",
        manifest_enabled="true",
        ops_metrics_enabled="true",
    )
    made.create_namespace(ln.CreateNamespaceRequest(id=["w"]))
    return made


def asked(namespace, operation):
    return namespace.retrieve_ops_metrics().get(operation, 0)


@pytest.mark.parametrize("second", LIBRARIES, ids=["ours", "theirs"])
def test_versions_are_published_and_found_by_asking(namespace, second):
    client = {"namespace_client": namespace, "table_id": ID}
    lancelet.write_dataset(ROWS, **client)
    assert namespace.describe_table(ln.DescribeTableRequest(id=ID)).managed_versioning is True
    assert asked(namespace, "create_table_version") == 1
    second.write_dataset(ROWS, mode="append", **client)
    assert asked(namespace, "create_table_version") == 2
    before = asked(namespace, "list_table_versions")
    dataset = lancelet.dataset(**client)
    assert (dataset.version, dataset.count_rows()) == (2, 4)
    assert asked(namespace, "list_table_versions") == before + 1
    dataset.delete("a = 1")
    assert second.dataset(**client).count_rows() == 2
    before = asked(namespace, "describe_table_version")
    assert lancelet.dataset(version=1, **client).count_rows() == 2
    assert asked(namespace, "describe_table_version") == before + 1
    with pytest.raises(VersionNotFoundError):
        lancelet.dataset(version=9, **client)


def test_a_branch_has_versions_of_its_own(namespace):
    client = {"namespace_client": namespace, "table_id": ID}
    branch = lancelet.write_dataset(ROWS, **client).create_branch("dev/x")
    branch.insert(ROWS)
    assert (branch.version, branch.count_rows()) == (2, 4)
    assert lancelet.dataset(version=("dev/x", None), **client).count_rows() == 4
    assert lance.dataset(**client).count_rows() == 2


def test_of_two_writers_of_a_version_one_tries_again(namespace):
    client = {"namespace_client": namespace, "table_id": ID}
    first = lancelet.write_dataset(ROWS, **client)
    other = lancelet.dataset(**client)
    first.insert(ROWS)
    other.insert(ROWS)
    assert (other.version, other.count_rows()) == (3, 6)


def test_a_table_that_was_declared_has_no_versions(namespace):
    namespace.declare_table(ln.DeclareTableRequest(id=ID))
    assert namespace.list_table_versions(ln.ListTableVersionsRequest(id=ID)).versions == []
    with pytest.raises(ln.TableVersionNotFoundError):
        namespace.describe_table_version({"id": ID, "version": 1})
    with pytest.raises(DatasetNotFoundError):
        lancelet.dataset(namespace_client=namespace, table_id=ID)


def test_a_reply_that_is_lost_is_resolved_by_looking(tmp_path):
    class Losing(DirectoryNamespace):
        def create_table_version(self, request):
            super().create_table_version(request)
            if request["version"] == 2:
                raise ln.ServiceUnavailableError("the reply was lost")

    class Refusing(Losing):
        def create_table_version(self, request):
            raise ln.InternalError(f"nothing was done: {request}")

    settings = {"root": str(tmp_path), "table_version_tracking_enabled": "true"}
    dataset = lancelet.write_dataset(ROWS, namespace_client=Losing(**settings), table_id=["t"])
    dataset.insert(ROWS)
    assert (dataset.version, dataset.count_rows()) == (2, 4)
    refused = lancelet.dataset(namespace_client=Refusing(**settings), table_id=["t"])
    with pytest.raises(CommitOutcomeUnknownError):
        refused.insert(ROWS)
    assert lancelet.dataset(namespace_client=Losing(**settings), table_id=["t"]).version == 2


def test_a_manifest_that_is_not_there_is_no_version(tmp_path):
    namespace = DirectoryNamespace(root=str(tmp_path))
    namespace.declare_table(ln.DeclareTableRequest(id=["t"]))
    with pytest.raises(ln.InvalidInputError, match="no manifest is staged"):
        namespace.create_table_version(
            {"id": ["t"], "version": 1, "manifest_path": "_versions/1.manifest-x"}
        )
