"""How texts are compared: what a caller may choose, and how it is kept with an index.

num_hashes 128, num_bands 16      a signature has 16 bands of 8 numbers each
shingle_size 3                    three words that stand together count as one
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.format.protos import index_details_pb, index_pb
from lancelet.format.wire import parse_message, render_message
from lancelet.index.text.options import TextOptions
from lancelet.values import dataclass

_HASHES_MAX: Final = 4096
_BANDS_MAX: Final = 256
_BLOCK_DOCS: Final = 128
_POSTINGS: Final = 2
"""What the details say of postings, of which there are none."""


def _plain_words() -> TextOptions:
    return TextOptions(stem=False, remove_stop_words=False)


@dataclass(frozen=True, slots=True)
class Settings:
    """How signatures are made of texts.

    Attributes:
        num_hashes: How many numbers a signature has.
        num_bands: How many parts it is cut into; texts that agree in one of them are compared.
        shingle_size: How many words that stand together count as one.
        text: How texts are cut into words.
    """

    num_hashes: int = 128
    num_bands: int = 16
    shingle_size: int = 3
    text: TextOptions = field(default_factory=_plain_words)

    def __post_init__(self) -> None:
        """Refuse what means nothing."""
        if not 1 <= self.num_hashes <= _HASHES_MAX:
            raise InvalidInputError(
                f"MinHash LSH index requires 1 <= num_hashes <= {_HASHES_MAX}",
                num_hashes=self.num_hashes,
            )
        if not 1 <= self.num_bands <= _BANDS_MAX:
            raise InvalidInputError(
                f"MinHash LSH index requires 1 <= num_bands <= {_BANDS_MAX}",
                num_bands=self.num_bands,
            )
        if self.num_hashes % self.num_bands:
            raise InvalidInputError(
                "MinHash LSH index requires num_hashes to be a multiple of num_bands",
                num_hashes=self.num_hashes,
                num_bands=self.num_bands,
            )
        if self.shingle_size < 1:
            raise InvalidInputError(
                "MinHash LSH index requires shingle_size > 0", shingle_size=self.shingle_size
            )

    @staticmethod
    def of(given: Mapping[str, Any]) -> Settings:
        """Return the settings of parameters by name."""
        known = {"num_hashes", "num_bands", "shingle_size", "tokenizer"}
        unknown = sorted(set(given) - known)
        if unknown:
            raise InvalidInputError(
                "invalid MinHash LSH index params: unknown field",
                unknown=unknown,
                known=sorted(known),
            )
        numbers = {name: value for name, value in given.items() if name != "tokenizer"}
        wrong = {name: value for name, value in numbers.items() if type(value) is not int}
        if wrong:
            raise InvalidInputError(
                "invalid MinHash LSH index params: a number is expected", found=wrong
            )
        tokenizer = given.get("tokenizer") or {}
        if not isinstance(tokenizer, Mapping):
            raise InvalidInputError(
                "invalid MinHash LSH index params: tokenizer is a map of options", found=tokenizer
            )
        plain = {"stem": False, "remove_stop_words": False}
        return Settings(**numbers, text=TextOptions.of({**plain, **tokenizer}))

    @staticmethod
    def parse(details: bytes) -> Settings:
        """Return the settings that the details of an index keep."""
        found = parse_message(index_pb.MinHashLshIndexDetails, details)
        if found.signature_version:
            raise UnsupportedError(
                "signatures are of a version that this release does not know",
                found=found.signature_version,
            )
        text = found.tokenizer
        options = {
            "base_tokenizer": text.base_tokenizer or "simple",
            "language": json.loads(text.language) if text.language else "English",
            "max_token_length": text.max_token_length
            if text.HasField("max_token_length")
            else None,
            "lower_case": text.lower_case,
            "stem": text.stem,
            "remove_stop_words": text.remove_stop_words,
            "ascii_folding": text.ascii_folding,
            "min_ngram_length": text.min_ngram_length or 3,
            "max_ngram_length": text.max_ngram_length or 3,
            "prefix_only": text.prefix_only,
        }
        return Settings(
            found.num_hashes, found.num_bands, found.shingle_size, TextOptions.of(options)
        )

    def render(self) -> bytes:
        """Return the settings as the details of an index keep them."""
        text = self.text
        tokenizer = index_details_pb.InvertedIndexDetails(
            base_tokenizer=text.base_tokenizer,
            language=json.dumps(text.language),
            lower_case=text.lower_case,
            stem=text.stem,
            remove_stop_words=text.remove_stop_words,
            ascii_folding=text.ascii_folding,
            min_ngram_length=text.min_ngram_length,
            max_ngram_length=text.max_ngram_length,
            prefix_only=text.prefix_only,
            block_size=_BLOCK_DOCS,
            posting_format_version=_POSTINGS,
        )
        if text.max_token_length is not None:
            tokenizer.max_token_length = text.max_token_length
        return render_message(
            index_pb.MinHashLshIndexDetails(
                num_hashes=self.num_hashes,
                num_bands=self.num_bands,
                shingle_size=self.shingle_size,
                tokenizer=tokenizer,
            )
        )
