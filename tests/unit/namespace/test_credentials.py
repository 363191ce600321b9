"""Credentials of external catalogs: where they come from, when they change, and who sees them."""

import logging
import pickle
import re
import traceback
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import boto3
import moto
import pytest
from lance_namespace import (
    CreateNamespaceRequest,
    ListNamespacesRequest,
    PermissionDeniedError,
    ServiceUnavailableError,
    ThrottlingError,
)

from lancelet import surroundings
from lancelet.errors import InvalidInputError
from lancelet.namespace import DynamicContextProvider, OutcomeUnknownError, connect
from lancelet.surroundings import Surroundings
from tests.kit.catalog_servers import CLIENT, TOKEN, IcebergServer
from tests.kit.catalogs import FIRST, SERVERS
from tests.kit.http_server import Answer, ScriptedServer

SECRET = "planted-secret-83d1"
TOKEN_PATHS = {
    "unity": "/oidc/v1/token",
    "polaris": "/api/catalog/v1/oauth/tokens",
    "iceberg": "/v1/oauth/tokens",
}
SCOPES = {"unity": "all-apis", "polaris": "PRINCIPAL_ROLE:ALL", "iceberg": "catalog"}


class Clock(Surroundings):
    """Time that only a test and waiting move."""

    def __init__(self):
        self.now = 1000.0
        self.waits = []

    def monotonic(self):
        return self.now

    def time_ns(self):
        return int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1e9)

    def sleep(self, seconds):
        self.waits.append(seconds)
        self.now += seconds


@pytest.fixture
def clock():
    found = Clock()
    with surroundings.replaced_by(found):
        yield found


@pytest.fixture(params=[*SERVERS])
def service(request):
    with SERVERS[request.param]() as server:
        server.kind = request.param
        yield server


def opened(server, **properties):
    given = {"endpoint": server.endpoint, **properties}
    if server.kind == "unity":
        given["catalog"] = "lake"
    return connect(server.kind, given)


def list_names(namespace, server):
    path = list(FIRST.get(server.kind, ()))
    return namespace.list_namespaces(ListNamespacesRequest(id=path)).namespaces


def as_client(kind, secret=CLIENT[1]):
    if kind == "unity":
        return {"client_id": CLIENT[0], "client_secret": secret}
    return {"credential": f"{CLIENT[0]}:{secret}"}


def test_clients_get_tokens_and_replace_them_before_they_expire(service, clock):
    namespace = opened(service, **as_client(service.kind))
    for _ in range(3):
        list_names(namespace, service)
    assert len(service.issued) == 1
    path, form = service.issued[0]
    assert path == TOKEN_PATHS[service.kind]
    assert form["scope"] == SCOPES[service.kind]
    assert ("client_secret" in form) == (service.kind != "unity")
    clock.now += 3600 - 61
    list_names(namespace, service)
    assert len(service.issued) == 1
    clock.now += 2
    list_names(namespace, service)
    assert len(service.issued) == 2


def test_short_and_unknown_lifetimes_are_respected(service, clock):
    service.lifetime_seconds = 10
    namespace = opened(service, **as_client(service.kind))
    list_names(namespace, service)
    clock.now += 7
    list_names(namespace, service)
    assert len(service.issued) == 1
    clock.now += 2
    service.lifetime_seconds = None
    list_names(namespace, service)
    clock.now += 3000
    list_names(namespace, service)
    assert len(service.issued) == 2


@pytest.mark.usefixtures("clock")
def test_a_refused_token_is_replaced_once(service):
    namespace = opened(service, **as_client(service.kind))
    list_names(namespace, service)
    service.tokens.clear()
    path = [*FIRST.get(service.kind, ()), "sales"]
    namespace.create_namespace(CreateNamespaceRequest(id=path))
    assert len(service.issued) == 2
    assert list_names(namespace, service) == ["sales"]
    service.issue = lambda *_: (200, {"access_token": "useless"})
    service.tokens.clear()
    with pytest.raises(PermissionDeniedError, match="denies"):
        list_names(namespace, service)


def test_the_token_service_and_the_scope_can_be_set(service):
    with IcebergServer() as issuer:
        service.tokens = issuer.tokens
        namespace = opened(
            service,
            **as_client(service.kind),
            oauth2_server_uri=f"{issuer.endpoint}/elsewhere",
            scope="mine",
        )
        list_names(namespace, service)
    assert [(path, form["scope"]) for path, form in issuer.issued] == [("/elsewhere", "mine")]
    with pytest.raises(InvalidInputError, match="must be a URL"):
        opened(service, **as_client(service.kind), oauth2_server_uri="file:///x")


ENVIRONMENT = {
    "unity": {"DATABRICKS_CLIENT_ID": CLIENT[0], "DATABRICKS_CLIENT_SECRET": CLIENT[1]},
    "polaris": {"CLIENT_ID": CLIENT[0], "CLIENT_SECRET": CLIENT[1]},
    "iceberg": {"PYICEBERG_CATALOG__DEFAULT__CREDENTIAL": ":".join(CLIENT)},
}
ENDPOINTS = {"unity": "DATABRICKS_HOST", "iceberg": "PYICEBERG_CATALOG__DEFAULT__URI"}


def test_credentials_of_the_platform_are_found(service, monkeypatch):
    for name, value in ENVIRONMENT[service.kind].items():
        monkeypatch.setenv(name, value)
    if service.kind in ENDPOINTS:
        with pytest.raises(PermissionDeniedError):  # the variables are those of no endpoint
            list_names(opened(service), service)
        monkeypatch.setenv(ENDPOINTS[service.kind], "https://elsewhere.example")
        with pytest.raises(PermissionDeniedError):  # or of another one
            list_names(opened(service), service)
        monkeypatch.setenv(ENDPOINTS[service.kind], service.endpoint)
        properties = {"catalog": "lake"} if service.kind == "unity" else {}
        list_names(connect(service.kind, properties), service)
    list_names(opened(service), service)
    assert service.issued
    service.issued.clear()
    list_names(opened(service, auth_token=TOKEN), service)
    assert service.issued == []


def test_tokens_of_the_platform_are_found(monkeypatch):
    variables = {
        "unity": ("DATABRICKS_HOST", "DATABRICKS_TOKEN"),
        "iceberg": ("PYICEBERG_CATALOG__DEFAULT__URI", "PYICEBERG_CATALOG__DEFAULT__TOKEN"),
    }
    for kind, (host, token) in variables.items():
        with SERVERS[kind]() as server:
            server.kind = kind
            monkeypatch.setenv(host, server.endpoint)
            monkeypatch.setenv(token, TOKEN)
            list_names(opened(server), server)


def test_credentials_of_the_environment_are_not_sent_without_encryption(monkeypatch):
    from lancelet.namespace.credentials import with_environment

    monkeypatch.setenv("CLIENT_SECRET", SECRET)
    variables = {"client_secret": "CLIENT_SECRET"}
    found = {
        endpoint: "client_secret" in with_environment({"endpoint": endpoint}, variables)
        for endpoint in ("http://catalog.example", "https://catalog.example", "http://[::1]:80")
    }
    assert list(found.values()) == [False, True, True]


def test_tokens_are_not_sent_where_a_service_redirects_to():
    with (
        ScriptedServer([Answer(200, b"{}")]) as other,
        ScriptedServer([Answer(302, headers={"Location": other.endpoint})]) as server,
    ):
        namespace = connect(
            "iceberg", {"endpoint": server.endpoint, "auth_token": SECRET, "prefix": "main"}
        )
        with pytest.raises(Exception, match="302"):
            namespace.list_namespaces(ListNamespacesRequest(id=[]))
        assert other.requests == []


class Tokens(DynamicContextProvider):
    def __init__(self):
        self.count = 0

    def provide_context(self, info):
        self.count += 1
        return {
            "headers.Authorization": f"Bearer {TOKEN}",
            "headers.X-Operation": info["operation"],
        }


def test_headers_of_a_provider_are_sent(service):
    provider = Tokens()
    properties = {"endpoint": service.endpoint}
    if service.kind == "unity":
        properties["catalog"] = "lake"
    namespace = type(opened(service))(provider, **properties)
    list_names(namespace, service)
    assert provider.count == 1
    assert service.headers[-1]["X-Operation"] == "list_namespaces"
    with pytest.raises(PermissionDeniedError):  # other namespaces do not get them
        list_names(opened(service), service)


# --- busy services ---------------------------------------------------------------------------


def iceberg_at(server):
    return connect("iceberg", {"endpoint": server.endpoint, "prefix": "main", "root": "memory://x"})


NAMES = Answer(200, b'{"namespaces": [["sales"]]}')


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_reads_are_repeated_as_a_busy_service_says(status, clock):
    later = format_datetime(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=9), usegmt=True)
    answers = [
        Answer(status, headers={"Retry-After": "7"}),
        Answer(status, headers={"Retry-After": later}),
        Answer(status, headers={"Retry-After": "soon"}),
        NAMES,
    ]
    with ScriptedServer(answers) as server:
        found = iceberg_at(server).list_namespaces(ListNamespacesRequest(id=[]))
    assert found.namespaces == ["sales"]
    assert clock.waits == [7, 9, 0.8]


def test_reads_are_repeated_if_the_answer_is_lost(clock):
    with ScriptedServer([Answer.HANG_UP, Answer(200, b"{", claimed_bytes=9), NAMES]) as server:
        found = iceberg_at(server).list_namespaces(ListNamespacesRequest(id=[]))
    assert found.namespaces == ["sales"]
    assert clock.waits == [0.2, 0.4]


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (Answer(429, headers={"Retry-After": "3600"}), ThrottlingError, "retry after 3600"),
        (Answer(503), ServiceUnavailableError, "failed: HTTP status 503"),
        (Answer.HANG_UP, ServiceUnavailableError, "was lost"),
    ],
)
def test_reads_end_with_an_error(answer, kind, message, clock):
    with ScriptedServer([answer] * 9) as server:
        with pytest.raises(kind, match=message):
            iceberg_at(server).list_namespaces(ListNamespacesRequest(id=[]))
        assert len(server.requests) == (1 if kind is ThrottlingError else 5)
    assert sum(clock.waits) < 10


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(429, headers={"Retry-After": "1"}), ThrottlingError),
        (Answer(503, headers={"Retry-After": "1"}), OutcomeUnknownError),
        (Answer(200, b"<html>"), OutcomeUnknownError),
        (Answer.HANG_UP, OutcomeUnknownError),
    ],
)
@pytest.mark.usefixtures("clock")
def test_changes_are_sent_once(answer, kind):
    with ScriptedServer([answer, *[Answer(503)] * 9]) as server:
        with pytest.raises(kind):
            iceberg_at(server).create_namespace(CreateNamespaceRequest(id=["sales"]))
        assert [each.method for each in server.requests].count("POST") == 1


# --- nobody sees them ------------------------------------------------------------------------


def shown_by(error):
    notes = getattr(error, "__notes__", ())
    return "".join([*traceback.format_exception(error), repr(error), *notes])


@pytest.mark.usefixtures("clock")
def test_secrets_are_not_in_errors_logs_and_pickles(service, caplog):
    caplog.set_level(logging.DEBUG)
    texts = []
    service.refuse_all = False
    for properties in ({"auth_token": SECRET}, as_client(service.kind, SECRET)):
        namespace = opened(service, **properties)
        texts += [repr(namespace), str(namespace), namespace.namespace_id()]
        assert SECRET.encode() not in pickle.dumps(namespace)
        reopened = pickle.loads(pickle.dumps(namespace))
        assert repr(reopened) == repr(namespace)
        with pytest.raises(PermissionDeniedError) as denied:
            list_names(namespace, service)
        texts.append(shown_by(denied.value))
    service.answer = lambda *_: (_ for _ in ()).throw(ValueError)
    good = opened(service, auth_token=TOKEN)
    service.handle = lambda *given: (500, {"message": f"failed for {given[-1]}"})
    with pytest.raises(ServiceUnavailableError) as failed:
        list_names(good, service)
    texts.append(shown_by(failed.value))
    everything = "\n".join([*texts, caplog.text])
    assert SECRET not in everything
    assert TOKEN not in everything
    assert re.search(r"denies|issued no token", everything)


def test_credentials_of_glue_are_those_of_boto3(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    profiles = tmp_path / "credentials"
    profiles.write_text(
        f"[lake]\naws_access_key_id = of-profile\naws_secret_access_key = {SECRET}\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profiles))
    with moto.mock_aws():
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        region = {"region": "us-east-1"}
        cases = [
            {"profile_name": "lake"},
            {"access_key_id": "of-properties", "secret_access_key": SECRET},
            {},
        ]
        used = []
        for properties in cases:
            if not properties:
                monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-environment")
                monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
            namespace = connect("glue", {**region, **properties})
            credentials = namespace._catalog._writer._request_signer._credentials
            used.append(credentials.access_key)
            namespace.list_namespaces(ListNamespacesRequest(id=[]))
            assert SECRET not in repr(namespace) + caplog.text
            assert SECRET.encode() not in pickle.dumps(namespace)
            with pytest.raises(Exception, match="not found") as missing:
                namespace.describe_namespace({"id": ["missing"]})
            assert SECRET not in shown_by(missing.value)
        assert used == ["of-profile", "of-properties", "of-environment"]
    assert boto3
