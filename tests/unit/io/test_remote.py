"""What remote stores do beyond the suite: requests, failures, processes, credentials."""

import itertools
import pickle
import socket
import threading
import time
from collections.abc import Iterator
from urllib.parse import unquote

import numpy as np
import obstore.exceptions
import pytest

from lancelet.buffers import ByteRanges
from lancelet.errors import (
    AlreadyExistsError,
    CommitOutcomeUnknownError,
    CorruptDataError,
    InvalidInputError,
    ObjectNotFoundError,
    StorageError,
    StorageUnavailableError,
)
from lancelet.io import Store, open_folder
from lancelet.io.client import Client, _hint, open_client
from tests.kit.http_server import Answer, ScriptedServer
from tests.kit.s3_server import S3Server

IMPATIENT = {"client_max_retries": "0", "timeout": "1s"}

_numbers = itertools.count()


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    name = f"remote-{next(_numbers)}"
    s3_server.make_bucket(name)
    return name


@pytest.fixture
def own_server() -> Iterator[S3Server]:
    with S3Server("bucket") as server:
        yield server


def scripted(answers: list[Answer], **options: str) -> tuple[ScriptedServer, Store]:
    server = ScriptedServer(answers)
    settings = {
        "aws_access_key_id": "key",
        "aws_secret_access_key": "secret",
        "aws_region": "us-east-1",
        "aws_endpoint": server.endpoint,
        "allow_http": "true",
        "timeout": "2s",
        **options,
    }
    return server, open_folder("s3://bucket", settings)


def test_near_ranges_are_one_request_and_far_ones_go_side_by_side(s3_server, bucket):
    store = open_folder(f"s3://{bucket}", s3_server.storage_options)
    data = np.random.default_rng(2).integers(0, 256, 1 << 20, np.uint8)
    store.put("a", data)
    with store.open_reader("a", len(data)) as reader:
        near = reader.read_ranges(ByteRanges.of((10, 5), (5000, 5), (30, 2)))
        far = reader.read_ranges(ByteRanges.of((900_000, 9), (10, 5), (0, 0), (500_000, 7)))
    assert near.source.nbytes == 4995
    assert far.source.nbytes == 21
    assert far.slice_bytes(0).tobytes() == data[900_000:900_009].tobytes()
    assert far.slice_bytes(3).tobytes() == data[500_000:500_007].tobytes()


def test_wrong_size_is_corrupt_and_not_cut_short(s3_server, bucket):
    store = open_folder(f"s3://{bucket}", s3_server.storage_options)
    store.put("a", b"0123456789")
    for position in (5, 50):
        with pytest.raises(CorruptDataError) as caught:
            store.open_reader("a", size=100).read_ranges(ByteRanges.of((position, 20)))
        assert caught.value.facts["path"] == "a"


def test_listing_is_lazy_and_continues_over_pages(s3_server, bucket):
    store = open_folder(f"s3://{bucket}", s3_server.storage_options)
    for number in range(1005):
        store.put(f"v/{number:05}", b"")
    assert [info.path for info in store.list("v")] == [f"v/{n:05}" for n in range(1005)]
    assert next(store.list("v")).path == "v/00000"


def test_given_up_upload_leaves_no_parts(s3_server, bucket):
    store = open_folder(f"s3://{bucket}", s3_server.storage_options)
    writer = store.open_writer("a")
    writer.write(bytes(25 << 20))
    assert b"<UploadId>" in s3_server.request("GET", f"{bucket}?uploads")
    writer.abort()
    assert b"<UploadId>" not in s3_server.request("GET", f"{bucket}?uploads")


def test_dead_server_is_unavailable_after_the_last_retry(own_server):
    options = own_server.storage_options | {"client_max_retries": "1"}
    store = open_folder("s3://bucket", options)
    store.put("a", b"x")
    own_server.kill()
    with pytest.raises(StorageUnavailableError) as caught:
        store.read("a")
    assert caught.value.__notes__ == ["gave up after 2 attempts"]
    with pytest.raises(CommitOutcomeUnknownError):
        store.put_if_absent("v/1", b"x")


def test_lost_reply_of_put_if_absent_is_an_unknown_outcome(own_server):
    store = open_folder("s3://bucket", own_server.storage_options | IMPATIENT)
    store.put("warm", b"x")
    own_server.pause()
    with pytest.raises(CommitOutcomeUnknownError) as caught:
        store.put_if_absent("v/1", b"mine")
    assert caught.value.facts["path"] == "v/1"
    own_server.resume()
    # The request had reached the server, which does it as soon as it can.
    deadline = time.monotonic() + 10
    while not store.exists("v/1") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert store.read("v/1") == b"mine"
    with pytest.raises(AlreadyExistsError):
        store.put_if_absent("v/1", b"again")


def test_slow_server_is_waited_for_until_the_time_limit(own_server):
    store = open_folder("s3://bucket", own_server.storage_options | IMPATIENT)
    store.put("a", b"x")
    own_server.pause()
    started = time.monotonic()
    with pytest.raises(StorageUnavailableError):
        store.read("a")
    assert 0.9 < time.monotonic() - started < 5
    threading.Timer(0.3, own_server.resume).start()
    assert store.read("a") == b"x"


@pytest.mark.parametrize("status", [500, 502, 503, 429])
def test_conditional_put_is_never_sent_twice(status):
    server, store = scripted([Answer(status)] * 3)
    with server, pytest.raises(CommitOutcomeUnknownError):
        store.put_if_absent("v/1", b"x")
    (request,) = server.requests
    assert request.method == "PUT"
    assert request.headers["if-none-match"] == "*"


def test_conditional_put_whose_connection_breaks_is_unknown():
    server, store = scripted([Answer.HANG_UP] * 3)
    with server, pytest.raises(CommitOutcomeUnknownError):
        store.put_if_absent("v/1", b"x")
    assert len(server.requests) == 1


def test_outcome_of_a_conditional_put_without_a_reply_is_unknown():
    """The library reports a refused connection by text only, which must not decide a commit."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{free.getsockname()[1]}"
        _, store = scripted([], aws_endpoint=endpoint)
        with pytest.raises(CommitOutcomeUnknownError):
            store.put_if_absent("v/1", b"x")


def test_unexpected_messages_leave_the_outcome_of_a_conditional_put_unknown():
    client = open_client("s3", "bucket", {"aws_region": "r", "skip_signature": "true"})
    with pytest.raises(CommitOutcomeUnknownError), client.outcome("v/1"):
        raise obstore.exceptions.GenericError("something that a later release says")
    with pytest.raises(StorageError) as caught, client.outcome("v/1"):
        raise obstore.exceptions.PermissionDeniedError("no")
    assert not isinstance(caught.value, CommitOutcomeUnknownError)


@pytest.mark.parametrize("status", [409, 412])
def test_conditional_put_that_lost_is_already_there(status):
    server, store = scripted([Answer(status)])
    with server, pytest.raises(AlreadyExistsError):
        store.put_if_absent("v/1", b"x")


def test_other_requests_are_sent_again():
    body = Answer(206, b"45", {"content-range": "bytes 4-5/10", "etag": "e"})
    server, store = scripted([Answer(503), Answer.HANG_UP, body])
    with server:
        slices = store.open_reader("a", 10).read_ranges(ByteRanges.of((4, 2)))
    assert slices.slice_bytes(0).tobytes() == b"45"
    assert [request.headers["range"] for request in server.requests] == ["bytes=4-5"] * 3


def test_answer_that_breaks_off_is_fetched_again():
    headers = {"content-range": "bytes 0-9/10", "etag": "e"}
    whole = Answer(206, b"0123456789", headers)
    server, store = scripted([Answer(206, b"012", headers, claimed_bytes=10), whole])
    with server:
        slices = store.open_reader("a", 10).read_ranges(ByteRanges.of((0, 10)))
    assert slices.slice_bytes(0).tobytes() == b"0123456789"


@pytest.mark.parametrize("status", [401, 403, 400])
def test_refusals_are_final(status):
    server, store = scripted([Answer(status)] * 3)
    with server, pytest.raises(StorageError) as caught:
        store.put("a", b"x")
    assert not isinstance(caught.value, StorageUnavailableError)
    assert len(server.requests) == 1


def test_missing_bucket_is_not_found(s3_server):
    store = open_folder("s3://no-such-bucket", s3_server.storage_options)
    with pytest.raises(ObjectNotFoundError):
        store.read("a")


def test_errors_hold_no_secrets(s3_server):
    options = s3_server.storage_options | {"aws_secret_access_key": "hush-hush"}
    store = open_folder("s3://no-such-bucket", options | {"client_max_retries": "0"})
    for request in (store.read, store.info, lambda path: store.put(path, b"x")):
        with pytest.raises((StorageError, ObjectNotFoundError)) as caught:
            request("a")
        assert "hush-hush" not in repr(caught.value) + str(caught.value.facts)


def test_clouds_are_asked_in_their_own_ways():
    """The conditional put of each cloud, as it goes over the wire."""
    google = {"google_base_url": "{}", "google_storage_token": "token"}
    azure = {
        "azure_storage_account_name": "account",
        "azure_storage_account_key": "a2V5",
        "azure_storage_endpoint": "{}",
    }
    for uri, options, header, value in (
        ("gs://bucket/t", google, "x-goog-if-generation-match", "0"),
        ("az://bucket/t", azure, "if-none-match", "*"),
        ("abfss://bucket@account.dfs.core.windows.net/t", azure, "if-none-match", "*"),
    ):
        with ScriptedServer([Answer(201, headers={"etag": "e"})]) as server:
            filled = {key: text.format(server.endpoint) for key, text in options.items()}
            open_folder(uri, filled | {"allow_http": "true"}).put_if_absent("v/1", b"x")
        (request,) = server.requests
        assert request.headers[header] == value
        assert unquote(request.path).endswith("bucket/t/v/1")


def azure(answers: list[Answer]) -> tuple[ScriptedServer, Store]:
    server = ScriptedServer(answers)
    options = {
        "azure_storage_account_name": "account",
        "azure_storage_account_key": "a2V5",
        "azure_storage_endpoint": server.endpoint,
        "allow_http": "true",
    }
    return server, open_folder("az://bucket", options)


def test_tail_is_found_where_a_store_cannot_count_from_the_end():
    tail = Answer(206, b"89", {"content-range": "bytes 8-9/10", "etag": "e"})
    server, store = azure([Answer(200, headers={"etag": "e"}, claimed_bytes=10), tail])
    with server, store.open_reader("a") as reader:
        assert reader.read_tail(2).tobytes() == b"89"
        assert reader.size == 10
    assert [request.method for request in server.requests] == ["HEAD", "GET"]
    assert server.requests[1].headers["range"] == "bytes=8-9"


def test_errors_name_the_options_that_the_store_does_not_know():
    with ScriptedServer([Answer(403)] * 4) as server:
        options = {
            "aws_access_key_id": "key",
            "aws_secret_access_key": "secret",
            "aws_endpoint": server.endpoint,
            "allow_http": "true",
            "durability": "written",
            "aws_regoin": "eu",
            "client_max_retries": "0",
        }
        with pytest.raises(StorageError) as caught:
            open_folder("s3://bucket", options).put("a", b"x")
    assert caught.value.facts["ignored_options"] == ["aws_regoin"]


def test_deletion_continues_after_missing_objects():
    with ScriptedServer([Answer(404)] * 3 + [Answer(204)] * 3) as server:
        options = {"google_base_url": server.endpoint, "google_storage_token": "token"}
        store = open_folder("gs://bucket", options | {"allow_http": "true"})
        store.delete_many(["a", "b", "c"])
    assert {request.method for request in server.requests} == {"DELETE"}
    asked = [unquote(request.path) for request in server.requests]
    assert set(asked[-3:]) >= {"/bucket/b", "/bucket/c"}


def test_listing_is_sorted_where_a_store_does_not(s3_server):
    """Directory buckets list in any order; their names end in a way that says so."""
    s3_server.make_bucket("shelf--x-s3")
    store = open_folder("s3://shelf--x-s3/t", s3_server.storage_options)
    assert not open_client("s3", "shelf--x-s3", s3_server.storage_options).lists_in_order
    for path in ("b", "a/x", "a.x", "c"):
        store.put(path, b"")
    assert [info.path for info in store.list()] == ["a.x", "a/x", "b", "c"]
    assert [info.path for info in store.list(start_after="a/x")] == ["b", "c"]


NOBODY = {"aws_endpoint": "http://127.0.0.1:9", "aws_region": "us-east-1"}
KEYS = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}


@pytest.mark.parametrize(
    ("uri", "options", "setting"),
    [
        ("s3://b/t", NOBODY | KEYS, "allow_http='true'"),
        ("s3://b/t", NOBODY | KEYS | {"allow_http": "true"}, "check the endpoint"),
        ("az://b/t", {}, "azure_storage_account_name"),
        ("gs://b/t", {"google_service_account": "/none.json"}, "google_service_account"),
    ],
)
@pytest.mark.usefixtures("bare_environment")
def test_errors_name_the_relevant_setting(uri, options, setting):
    with pytest.raises((StorageError, InvalidInputError)) as caught:
        list(open_folder(uri, {**options, **IMPATIENT}).list(""))
    assert setting in caught.value.message


def test_a_reason_may_name_the_setting():
    asked = "Error performing PUT http://169.254.169.254/latest/api/token"
    assert "aws_access_key_id" in _hint(asked)
    assert _hint("500 Internal Server Error") == ""


@pytest.fixture
def bare_environment(tmp_path, monkeypatch):
    """No setting but a profile in the home folder."""
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = from-profile\naws_secret_access_key = s\n"
    )
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.usefixtures("bare_environment")
def test_profile_is_used_when_options_name_no_credentials():
    with ScriptedServer([Answer(200, b"x", {"etag": "e"})]) as server:
        options = {"aws_endpoint": server.endpoint, "allow_http": "true"}
        assert open_folder("s3://shelf", options).read("a") == b"x"
    assert "Credential=from-profile/" in server.requests[0].headers["authorization"]


@pytest.mark.usefixtures("bare_environment")
def test_region_is_requested_if_options_have_no_region(monkeypatch):
    monkeypatch.setattr("lancelet.io.client.bucket_region", lambda bucket: f"near-{bucket}")
    assert open_client("s3", "shelf", {"timeout": "7s"}).store.config["region"] == "near-shelf"


def test_options_may_be_in_any_case_and_unknown_ones_are_ignored(s3_server, bucket):
    options = {name.upper(): value for name, value in s3_server.storage_options.items()}
    store = open_folder(f"s3://{bucket}", options | {"ddbTableName": "x", "My-Own": "y"})
    store.put("a", b"x")
    assert store.read("a") == b"x"


def test_short_names_of_options_work(s3_server, bucket):
    options = {
        name.removeprefix("aws_"): value for name, value in s3_server.storage_options.items()
    }
    store = open_folder(f"s3://{bucket}", options)
    store.put("a", b"x")
    assert store.read("a") == b"x"


@pytest.mark.parametrize(
    "options", [{"client_max_retries": "many"}, {"timeout": "soon"}, {"allow_http": "perhaps"}]
)
def test_invalid_options_are_rejected(s3_server, options):
    with pytest.raises(InvalidInputError):
        open_folder("s3://bucket", s3_server.storage_options | options).read("a")


def test_equal_options_share_a_client(s3_server):
    options = s3_server.storage_options
    first = open_client("s3", "bucket", options)
    assert open_client("s3", "bucket", dict(reversed(options.items()))) is first
    assert open_client("s3", "other", options) is not first
    assert open_client("s3", "bucket", options | {"timeout": "9s"}) is not first
    assert pickle.loads(pickle.dumps(first)) is first


class CountingProvider:
    """Credentials that last some seconds."""

    def __init__(self, options: dict[str, str], lifetime_seconds: float) -> None:
        self.options = options
        self.lifetime_seconds = lifetime_seconds
        self.asked = 0

    def __call__(self) -> dict[str, str]:
        self.asked += 1
        expires_at = int((time.time() + self.lifetime_seconds) * 1000)
        return self.options | {"expires_at_millis": str(expires_at)}


@pytest.mark.parametrize(("lifetime_seconds", "asked"), [(3600, 1), (30, 4)])
def test_provider_is_called_again_before_its_credentials_expire(
    s3_server, bucket, lifetime_seconds, asked
):
    """A minute of life left is too little, so then every request asks."""
    options = s3_server.storage_options
    secrets = {name: options.pop(name) for name in list(options) if "key" in name}
    provider = CountingProvider(secrets, lifetime_seconds)
    store = open_folder(f"s3://{bucket}", options, provider=provider)
    for number in range(4):
        store.put("a", b"%d" % number)
        # Within a tenth of a second the client trusts what it was just told.
        time.sleep(0.11)
    assert provider.asked == asked


def test_provider_without_credentials_is_named(s3_server):
    store = open_folder(
        "s3://bucket", {"aws_endpoint": s3_server.endpoint}, provider=lambda: {"region": "x"}
    )
    with pytest.raises(StorageError, match="credentials"):
        store.read("a")


FORK_AFTER_REQUESTS = """
import multiprocessing, sys
import numpy as np
import obstore.exceptions
from lancelet.buffers import ByteRanges
from lancelet.io import open_folder

store = open_folder(sys.argv[1], dict(zip(sys.argv[2::2], sys.argv[3::2], strict=True)))
data = np.arange(1 << 18, dtype=np.uint32)
far = ByteRanges.of((0, 4), (500_000, 4), (1_000_000, 4))


def read_far():
    with store.open_reader("a") as reader:
        slices = reader.read_ranges(far)
    return [int(slices.slice_bytes(index).view(np.uint32)[0]) for index in range(3)]


def in_fork(task):
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=lambda: send.send(task()))
    child.start()
    try:
        return receive.recv() if receive.poll(20) else "the child hangs"
    finally:
        child.kill()
        child.join()


def child():
    found = read_far()
    try:
        store.put_if_absent("a", b"")
    except FileExistsError:
        found.append("taken")
    store.put("from-child", b"x")
    # A child of the child is no different.
    return [*found, in_fork(lambda: store.read("from-child"))]


store.put("a", data)
assert read_far() == [0, 125_000, 250_000]
print(in_fork(child), store.read("from-child"))
"""


def test_forked_child_can_go_on(run_program, s3_server, bucket):
    """Threads of the parent are gone in the child, whose requests must not wait for them."""
    options = itertools.chain.from_iterable(s3_server.storage_options.items())
    printed = run_program(FORK_AFTER_REQUESTS, f"s3://{bucket}", *options)
    assert printed == "[0, 125000, 250000, 'taken', b'x'] b'x'\n"


def test_client_is_made_when_it_is_needed():
    """Opening a store sends nothing and reads no certificates, so planning is cheap."""
    client = open_client("s3", "bucket", {"aws_endpoint": "http://127.0.0.1:1"})
    assert isinstance(client, Client)
    assert client._cached_stores is None
