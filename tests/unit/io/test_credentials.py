from datetime import UTC, datetime
from email.message import Message
from pathlib import Path

import pytest

from lancelet.errors import InvalidInputError
from lancelet.io.client import _head, bucket_region
from lancelet.io.credentials import (
    RefreshedOptions,
    credential_provider,
    profile_options,
)
from lancelet.io.options import sort_options
from lancelet.io.retry import RetryPolicy
from tests.kit.http_server import Answer, ScriptedServer


def test_provider_is_called_once_until_a_minute_before_expiry():
    times = [1000.0, 2000.0, 4539.0, 4540.0, 4541.0]
    now = times[0]
    asked: list[float] = []

    def provider() -> dict[str, str]:
        asked.append(now)
        return {"token": f"at {now}", "expires_at_millis": str(int((now + 3600) * 1000))}

    refreshed = RefreshedOptions(provider, clock=lambda: now)
    for time in times:
        now = time
        options, expires_at = refreshed.get()
    assert asked == [1000.0, 4540.0]
    assert options["token"] == "at 4540.0"
    assert expires_at == datetime.fromtimestamp(4540 + 3600, UTC)


def test_credentials_without_expiry_are_requested_once():
    asked: list[int] = []
    refreshed = RefreshedOptions(lambda: asked.append(1) or {"token": "t"})
    assert [refreshed.get()[1] for _ in range(3)] == [None] * 3
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("scheme", "options", "expected"),
    [
        (
            "s3",
            {"AWS_ACCESS_KEY_ID": "k", "aws_secret_access_key": "s", "aws_session_token": "t"},
            {"access_key_id": "k", "secret_access_key": "s", "token": "t"},
        ),
        (
            "s3",
            {"access_key_id": "k", "secret_access_key": "s"},
            {"access_key_id": "k", "secret_access_key": "s", "token": None},
        ),
        ("gs", {"google_storage_token": "t"}, {"token": "t"}),
        ("az", {"azure_storage_sas_token": "sas"}, {"sas_token": "sas"}),
        ("az", {"bearer_token": "t"}, {"token": "t"}),
        ("az", {"account_key": "k"}, {"access_key": "k"}),
    ],
)
def test_each_cloud_gets_its_own_shape(scheme, options, expected):
    found = credential_provider(scheme, RefreshedOptions(lambda: options))()
    assert found == expected | {"expires_at": None}


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_missing_credentials_are_named_without_values(scheme):
    provider = credential_provider(scheme, RefreshedOptions(lambda: {"other": "hush-hush"}))
    with pytest.raises(InvalidInputError) as caught:
        provider()
    assert caught.value.facts["found"] == ["other"]
    assert "hush-hush" not in str(caught.value)


def test_keys_come_from_the_profile_in_use(tmp_path: Path):
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = d\naws_secret_access_key = ds\n"
        "[work]\naws_access_key_id = w%\naws_secret_access_key = ws\n"
    )
    (tmp_path / ".aws" / "config").write_text(
        "[default]\nregion = eu-west-1\n[profile work]\nregion = us-east-2\noutput = json\n"
    )
    home = {"HOME": str(tmp_path)}
    assert profile_options(home) == {
        "aws_access_key_id": "d",
        "aws_secret_access_key": "ds",
        "region": "eu-west-1",
    }
    assert profile_options(home | {"AWS_PROFILE": "work"}) == {
        "aws_access_key_id": "w%",
        "aws_secret_access_key": "ws",
        "region": "us-east-2",
    }
    assert profile_options(home | {"AWS_PROFILE": "nobody"}) == {}
    assert profile_options({"HOME": str(tmp_path / "nowhere")}) == {}


def test_options_are_sorted_by_consumer():
    found = sort_options(
        {
            "AWS_REGION": "r",
            "endpoint": "e",
            "Allow_HTTP": "true",
            "azure_storage_use_http": "true",
            "timeout": "9s",
            "client_max_retries": "3",
            "CLIENT_RETRY_TIMEOUT": "20",
        }
    )
    assert found.store == {"aws_region": "r", "endpoint": "e"}
    assert found.http == {"allow_http": "true", "timeout": "9s"}
    assert found.retry == RetryPolicy(retries_max=3, timeout_seconds=20)


def test_region_is_requested_by_bucket():
    asked: list[str] = []

    def head(url: str) -> Message:
        asked.append(url)
        headers = Message()
        headers["X-Amz-Bucket-Region"] = "eu-west-3"
        return headers

    assert bucket_region("my.shelf", head=head) == "eu-west-3"
    assert asked == ["https://s3.amazonaws.com/my.shelf"]
    assert bucket_region("shelf", head=lambda _: None) is None
    assert bucket_region("shelf", head=lambda _: Message()) is None


@pytest.mark.parametrize("status", [200, 301, 403])
def test_region_is_in_the_headers_of_any_answer(status):
    headers = {"x-amz-bucket-region": "ap-south-1"}
    with ScriptedServer([Answer(status, headers=headers)]) as server:
        assert _head(server.endpoint)["x-amz-bucket-region"] == "ap-south-1"
    assert server.requests[0].method == "HEAD"


def test_the_region_is_unknown_without_a_response():
    assert _head("http://127.0.0.1:1") is None
