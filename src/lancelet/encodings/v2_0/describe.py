"""Array encodings in words, for reports and for people who look into files."""

from __future__ import annotations

from lancelet.format.protos import encodings20_pb as pb


def describe(encoding: pb.ArrayEncoding) -> str:
    """Return an encoding in words, such as `nullable(flat(64))`.

    >>> flat = pb.ArrayEncoding(flat=pb.Flat(bits_per_value=64))
    >>> describe(pb.ArrayEncoding(nullable=pb.Nullable(no_nulls=pb.Nullable.NoNull(values=flat))))
    'flat(64)'
    """
    kind = encoding.WhichOneof("array_encoding")
    match kind:
        case "flat":
            flat = encoding.flat
            scheme = f", {flat.compression.scheme}" if flat.HasField("compression") else ""
            return f"flat({flat.bits_per_value}{scheme})"
        case "nullable":
            return _describe_nullable(encoding.nullable)
        case "fixed_size_list":
            fixed = encoding.fixed_size_list
            return f"fixed_size_list({fixed.dimension}, {describe(fixed.items)})"
        case "list":
            return f"list({describe(encoding.list.offsets)})"
        case "binary":
            return f"binary({describe(encoding.binary.indices)}, {describe(encoding.binary.bytes)})"
        case "dictionary":
            indices, items = encoding.dictionary.indices, encoding.dictionary.items
            return f"dictionary({describe(indices)}, {describe(items)})"
        case "fsst":
            return f"fsst({describe(encoding.fsst.binary)})"
        case "packed_struct":
            inner = ", ".join(describe(child) for child in encoding.packed_struct.inner)
            return f"packed_struct({inner})"
        case _:
            return kind or "unknown"


def _describe_nullable(nullable: pb.Nullable) -> str:
    match nullable.WhichOneof("nullability"):
        case "no_nulls":
            return describe(nullable.no_nulls.values)
        case "some_nulls":
            return f"nullable({describe(nullable.some_nulls.values)})"
        case _:
            return "all_nulls"
