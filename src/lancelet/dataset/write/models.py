"""Datasets of Pydantic models."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from lancelet import change
from lancelet.dataset.dry_runs import previews_class_dataset
from lancelet.dataset.write.request import WriteRequest
from lancelet.errors import InvalidInputError

if TYPE_CHECKING:
    from lancelet.change.dry_run import ChangeReport
    from lancelet.dataset.dataset import LanceDataset


class ModelMethods:
    """Methods that write Pydantic models."""

    @previews_class_dataset
    def from_pydantic_model(
        cls,
        /,
        model_class: Any,
        data: Sequence[Any],
        uri: str | os.PathLike[str] | None = None,
        mode: str = "create",
        *,
        dry_run: bool = False,
        **kwargs: Any,
    ) -> LanceDataset | ChangeReport:
        """Write pydantic models as rows. The class defines the schema.

        Args:
            model_class: The class of the models.
            data: The models, at least one.
            uri: The destination; by default the class name in snake case.
            mode: As for `write_dataset`.
            dry_run: Write nothing and return a report of what would be written.
            **kwargs: Further arguments of `write_dataset`.

        Returns:
            The dataset; with `dry_run`, the `ChangeReport`.

        Raises:
            SchemaMismatchError: If the rows do not match the schema, or a cast would lose data.
            AlreadyExistsError: If the name already exists.

        Example:
            ```python
            from pydantic import BaseModel

            class Book(BaseModel):
                title: str
                pages: int | None = None

            lance.LanceDataset.from_pydantic_model(Book, [Book(title="Ulysses")], "memory://")
            ```
        """
        import pydantic  # noqa: PLC0415 - an extra

        from lancelet.pydantic import (  # noqa: PLC0415 - requires Pydantic
            ModelTypeError,
            models_to_table,
        )

        if not (isinstance(model_class, type) and issubclass(model_class, pydantic.BaseModel)):
            raise ModelTypeError(
                f"model_class must be a Pydantic BaseModel subclass, got {model_class!r}"
            )
        if isinstance(data, list) and not data:
            raise InvalidInputError("`data` must be a non-empty list of Pydantic model instances.")
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", model_class.__name__).lower()
        schema = kwargs.pop("schema", None)
        rows = change.rows.read_rows(models_to_table(data, model_class), schema)
        request = WriteRequest(name if uri is None else uri, mode, **kwargs)
        if dry_run:
            return request.report(rows)
        handle = request.write(rows)
        own = cast("type[LanceDataset]", cls)  # the class that uses this mixin
        return own(handle.location.uri, session=request.session, _handle=handle)
