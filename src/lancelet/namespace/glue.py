"""A namespace in the AWS Glue Data Catalog: databases are namespaces.

    GlueNamespace(region="us-east-1", root="s3://bucket/lake")
    ["sales", "orders"]     the table `orders` of the database `sales`

Lance tables are external tables with the parameter `table_type = lance`. Credentials are those of
boto3: properties, environment variables, profiles, or the role of the machine. boto3 refreshes
temporary ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from lance_namespace import (
    InvalidInputError,
    NamespaceNotEmptyError,
    PermissionDeniedError,
    ServiceUnavailableError,
    ThrottlingError,
)

from lancelet.errors import redacted
from lancelet.namespace.context import DynamicContextProvider
from lancelet.namespace.external import (
    LANCE,
    TABLE_TYPE,
    ExternalCatalog,
    ExternalNamespace,
    ExternalTable,
    database_and_table,
    database_of,
    is_lance,
)
from lancelet.namespace.operations import (
    OutcomeUnknownError,
    already_exists,
    no_namespace,
    not_found,
    text_of,
)

T = TypeVar("T")

_KIND: Final = "Glue"
_EXTERNAL: Final = "EXTERNAL_TABLE"
_TEXT_FORMAT: Final = {
    "InputFormat": "org.apache.hadoop.mapred.TextInputFormat",
    "OutputFormat": "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
    "SerdeInfo": {"SerializationLibrary": "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"},
}
"""The format that other engines see; Glue requires one."""


_FAILED: Final = 500
_BUSY: Final = {"ThrottlingException", "TooManyRequestsException"}
_DENIED: Final = {"AccessDeniedException", "UnrecognizedClientException", "ExpiredTokenException"}


class GlueNamespace(ExternalNamespace):
    """A namespace in the AWS Glue Data Catalog."""

    def __init__(
        self, context_provider: DynamicContextProvider | None = None, **properties: str
    ) -> None:
        """Connect to a catalog.

        Args:
            context_provider: Called before each operation, as in `RestNamespace`.
            **properties: `region`, `endpoint` and `catalog_id` of the catalog; `access_key_id`,
                `secret_access_key` and `session_token`, or `profile_name`, by default the
                credentials of boto3; `root`, the folder of new tables of databases without a
                location; and `storage.x` for each storage option `x`.
        """
        given = {name: str(value) for name, value in properties.items()}
        super().__init__(_Glue(given), given, context_provider)


class _Glue(ExternalCatalog):
    def __init__(self, properties: Mapping[str, str]) -> None:
        try:
            import boto3  # noqa: PLC0415 - an extra
            import botocore.config  # noqa: PLC0415 - an extra
            import botocore.exceptions  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise InvalidInputError(
                "a Glue namespace requires boto3: pip install 'lancelet[glue]'"
            ) from error
        if ("access_key_id" in properties) != ("secret_access_key" in properties):
            raise InvalidInputError(
                "Invalid input: set both `access_key_id` and `secret_access_key`, or none"
            )
        try:
            session = boto3.session.Session(
                aws_access_key_id=properties.get("access_key_id"),
                aws_secret_access_key=properties.get("secret_access_key"),
                aws_session_token=properties.get("session_token"),
                region_name=properties.get("region"),
                profile_name=properties.get("profile_name"),
            )
            self._region = session.region_name
            if self._region is None:
                raise InvalidInputError(
                    "a Glue namespace requires the property `region`, or the variable AWS_REGION"
                )
            endpoint = properties.get("endpoint")
            once = botocore.config.Config(retries={"total_max_attempts": 1})
            self._reader = session.client("glue", endpoint_url=endpoint)
            # A request that boto3 repeats after a lost answer would find its own effect.
            self._writer = session.client("glue", endpoint_url=endpoint, config=once)
        except (botocore.exceptions.BotoCoreError, ValueError) as error:
            raise InvalidInputError(
                redacted(f"Invalid input: boto3 refuses the properties of Glue: {error}")
            ) from error
        catalog_id = properties.get("catalog_id")
        self._given = {} if catalog_id is None else {"CatalogId": catalog_id}

    @property
    def name(self) -> str:
        catalog = self._given.get("CatalogId", "default catalog")
        return f'Glue: "{catalog}" in {self._region}'

    def namespaces(self, parent: tuple[str, ...]) -> list[str]:
        if parent:
            self.namespace(parent)
            return []
        pages = self._reader.get_paginator("get_databases").paginate(**self._given)
        return self._call(
            (), lambda: [each["Name"] for page in pages for each in page["DatabaseList"]]
        )

    def namespace(self, path: tuple[str, ...]) -> dict[str, str]:
        database = self._database(path)
        described = {
            "location": database.get("LocationUri"),
            "comment": database.get("Description"),
        }
        own = {key: value for key, value in described.items() if value}
        return own | dict(database.get("Parameters") or {})

    def create_namespace(self, path: tuple[str, ...], properties: Mapping[str, str]) -> None:
        parameters = dict(properties)
        database: dict[str, Any] = {"Name": database_of(path, _KIND)}
        if "location" in parameters:
            database["LocationUri"] = parameters.pop("location")
        if "comment" in parameters:
            database["Description"] = parameters.pop("comment")
        database["Parameters"] = parameters
        self._change(
            path, lambda: self._writer.create_database(DatabaseInput=database, **self._given)
        )

    def drop_namespace(self, path: tuple[str, ...]) -> None:
        name = database_of(path, _KIND)
        found = self._call(
            path,
            lambda: self._reader.get_tables(DatabaseName=name, MaxResults=1, **self._given),
        )
        if found["TableList"]:
            raise NamespaceNotEmptyError(f"Namespace not empty: {text_of(path)}")
        self._change(path, lambda: self._writer.delete_database(Name=name, **self._given))

    def tables(self, path: tuple[str, ...]) -> list[str]:
        return list(self.entries(path))

    def entries(self, path: tuple[str, ...]) -> Mapping[str, ExternalTable]:
        pages = self._reader.get_paginator("get_tables").paginate(
            DatabaseName=database_of(path, _KIND), **self._given
        )
        return self._call(
            path,
            lambda: {
                each["Name"]: _table(each)
                for page in pages
                for each in page["TableList"]
                if _is_lance(each)
            },
        )

    def table(self, path: tuple[str, ...]) -> ExternalTable:
        database, name = database_and_table(path, _KIND)
        found = self._call(
            path,
            lambda: self._reader.get_table(DatabaseName=database, Name=name, **self._given),
        )["Table"]
        if not _is_lance(found):
            raise InvalidInputError(
                f"Invalid input: {text_of(path)} is no Lance table; its type is "
                f"{found.get('TableType')} and its parameter {TABLE_TYPE} is "
                f"{(found.get('Parameters') or {}).get(TABLE_TYPE)}"
            )
        return _table(found)

    def create_table(self, path: tuple[str, ...], table: ExternalTable) -> None:
        database, name = database_and_table(path, _KIND)
        given = {
            "Name": name,
            "TableType": _EXTERNAL,
            "Parameters": {**table.properties, TABLE_TYPE: LANCE, "EXTERNAL": "TRUE"},
            "StorageDescriptor": {"Location": table.location, "Columns": [], **_TEXT_FORMAT},
        }
        self._change(
            path,
            lambda: self._writer.create_table(
                DatabaseName=database, TableInput=given, **self._given
            ),
        )

    def delete_table(self, path: tuple[str, ...]) -> None:
        database, name = database_and_table(path, _KIND)
        self._change(
            path,
            lambda: self._writer.delete_table(DatabaseName=database, Name=name, **self._given),
        )

    def root_of(self, path: tuple[str, ...]) -> str | None:
        return self._database(path).get("LocationUri")

    def _database(self, path: tuple[str, ...]) -> dict[str, Any]:
        name = database_of(path, _KIND)
        found = self._call(path, lambda: self._reader.get_database(Name=name, **self._given))
        return dict(found["Database"])

    def _change(self, path: tuple[str, ...], request: Callable[[], object]) -> None:
        """Send a request that changes the catalog; its answer may be lost."""
        self._call(path, request, lost=OutcomeUnknownError)

    def _call(
        self,
        path: tuple[str, ...],
        request: Callable[[], T],
        lost: type[ServiceUnavailableError] = ServiceUnavailableError,
    ) -> T:
        """Send a request, and convert its errors."""
        import botocore.exceptions as boto  # noqa: PLC0415 - an extra

        not_sent = (
            boto.ConnectTimeoutError,
            boto.EndpointConnectionError,
            boto.ProxyConnectionError,
            boto.SSLError,
        )
        try:
            return request()
        except boto.ClientError as error:
            raise _converted(error, path, lost) from error
        except (boto.NoCredentialsError, boto.PartialCredentialsError) as error:
            raise PermissionDeniedError(
                f"no credentials for Glue: {error}; set the property `profile_name`, or the "
                "variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            ) from error
        except boto.ParamValidationError as error:
            raise InvalidInputError(f"Invalid input: {error}") from error
        except not_sent as error:
            raise ServiceUnavailableError(
                redacted(f"cannot connect to Glue: {error}; check the endpoint and the network")
            ) from error
        except boto.BotoCoreError as error:
            raise lost(redacted(f"the answer of Glue was lost: {error}")) from error


def _converted(error: Any, path: tuple[str, ...], lost: type[ServiceUnavailableError]) -> Exception:
    code = error.response.get("Error", {}).get("Code", "")
    message = redacted(str(error))
    failed = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= _FAILED
    found: Exception = (lost if failed else ServiceUnavailableError)(message)
    if code == "AlreadyExistsException":
        found = already_exists(path, is_table=len(path) > 1)
    elif code == "EntityNotFoundException":
        is_database = len(path) < 2 or "database" in message.lower()
        found = no_namespace(path[:1]) if is_database else not_found(path)
    elif code in _BUSY:
        found = ThrottlingError(message)
    elif code in _DENIED:
        found = PermissionDeniedError(message)
    elif code in {"InvalidInputException", "ValidationException"}:
        found = InvalidInputError(f"Invalid input: {message}")
    return found


def _table(found: Mapping[str, Any]) -> ExternalTable:
    return ExternalTable(found["StorageDescriptor"]["Location"], dict(found["Parameters"]))


def _is_lance(table: Mapping[str, Any]) -> bool:
    return table.get("TableType") == _EXTERNAL and is_lance(table.get("Parameters"))
