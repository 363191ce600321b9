"""No credential of a URI or a storage option is in an error, whatever is wrong with it."""

import pickle
import traceback

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lancelet
from lancelet.errors import CorruptDataError, LanceletError, StorageError, redacted
from lancelet.namespace import RestNamespace

SECRET = "Zs3cr3tZ"
PASSWORDS = st.text("ab/:%?#&=+.", max_size=6).map(lambda text: f"{text}{SECRET}")
URIS = st.sampled_from(
    [
        "postgresql://ann:{}@127.0.0.1:1/db?connect_timeout=1",
        "postgres://ann:{}@[bad/db",
        "postgresql://ann:{}@127.0.0.1:port/db",
        "postgresql://127.0.0.1:1/db?password={}",
        "mysql://ann:{}@127.0.0.1:1/db",
        "sqlite://ann:{}@/nowhere/x.db",
        "unknown://ann:{}@host/db",
        "password='{} x host=",
        "{}",
    ]
)
ENDPOINTS = st.sampled_from(
    ["http://ann:{}@127.0.0.1:1", "http://ann:{}@[bad", "ann:{}@127.0.0.1:1", "http://:{}@", "{}"]
)
OPTIONS = st.sampled_from(
    [
        ("s3://b/t", "aws_endpoint"),
        ("s3://b/t", "AWS_Endpoint_URL"),
        ("s3://b/t", "endpoint"),
        ("az://c/t", "azure_endpoint"),
        ("az://c/t", "azure_storage_endpoint"),
        ("gs://b/t", "google_base_url"),
    ]
)
TABLES = st.sampled_from(
    [
        "s3://ann:{}@b/t",
        "ftp://ann:{}@h/t",
        "foo://ann:{}@h/t",
        "hf://ann:{}@x/y",
        "az://c:{}@a/t",
        "s3+ddb://b/t?x=1&sig={}",
    ]
)
EXAMPLES = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def shown(error):
    """Return all text that a program may see of an error and its causes."""
    parts = [pickle.dumps(error).decode("latin-1")]
    parts += traceback.format_exception_only(error)
    seen = error
    while seen is not None:
        parts += [str(seen), repr(seen), repr(seen.args), repr(getattr(seen, "facts", None))]
        parts += getattr(seen, "__notes__", [])
        seen = seen.__cause__ or seen.__context__
    return "\n".join(parts)


def check(call):
    with pytest.raises((LanceletError, OSError, ValueError)) as caught:
        call()
    assert SECRET not in shown(caught.value)


@EXAMPLES
@given(URIS, PASSWORDS)
def test_an_external_manifest_store_hides_passwords(uri, password):
    options = {"manifest_store": uri.format(password)}
    check(lambda: lancelet.dataset("memory://secrets/none", storage_options=options))


@EXAMPLES
@given(OPTIONS, ENDPOINTS, PASSWORDS)
def test_an_endpoint_hides_passwords(option, endpoint, password):
    uri, name = option
    options = {name: endpoint.format(password), "aws_secret_access_key": SECRET}
    check(lambda: lancelet.dataset(uri, storage_options=options))


@EXAMPLES
@given(TABLES)
def test_a_table_uri_hides_passwords(uri):
    options = {"client_max_retries": "0", "timeout": "1s", "aws_endpoint": "http://127.0.0.1:1"}
    check(lambda: lancelet.dataset(uri.format(SECRET), storage_options=options))


def test_errors_of_libraries_are_redacted_with_ours():
    def fail():
        raise OSError(f"cannot reach postgres://ann:{SECRET}@host")

    def translate():
        try:
            fail()
        except OSError as error:
            raise StorageError("not reached", reason=str(error)) from error

    with pytest.raises(StorageError) as caught:
        translate()
    caught.value.add_note(f"http://ann:{SECRET}@host")
    caught.value.with_facts(endpoint=f"http://ann:{SECRET}@host", more=[f"password={SECRET}"])
    assert SECRET not in shown(caught.value)


def test_namespaces_show_no_password():
    namespace = RestNamespace(uri=f"http://ann:{SECRET}@127.0.0.1:1")
    assert SECRET not in repr(namespace)


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/a@b",
        "http://127.0.0.1:9000/b/x@y",
        "hf://datasets/org/name@main/t.lance",
        "the filter a = 1 has no token",
        "ann@example.org",
    ],
)
def test_texts_without_credentials_stay(text):
    assert redacted(text) == text
    assert str(CorruptDataError(text)) == text
