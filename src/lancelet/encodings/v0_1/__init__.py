"""Version 0.1: batches of plain pages, without nulls."""

from lancelet.encodings.v0_1.dictionaries import Dictionaries
from lancelet.encodings.v0_1.pages import FieldPages, StoredBatches, is_variable
from lancelet.encodings.v0_1.reader import FieldReader, open_field
from lancelet.encodings.v0_1.writer import (
    BatchEncoder,
    Page,
    check_storable,
    dictionary_fields,
    prepare,
    prepare_values,
)

__all__ = [
    "BatchEncoder",
    "Dictionaries",
    "FieldPages",
    "FieldReader",
    "Page",
    "StoredBatches",
    "check_storable",
    "dictionary_fields",
    "is_variable",
    "open_field",
    "prepare",
    "prepare_values",
]
