"""Blobs: values to write and files to read. Mirrors the pylance module of this name."""

from lancelet.dataset.blob import DEFAULT_BLOB_BUFFER_SIZE, BlobColumn, BlobFile, BlobIterator
from lancelet.dataset.file.blob_descriptors import BlobDescriptor, BlobDescriptorArrayBuilder
from lancelet.dataset.file.blob_writers import DedicatedBlobWriter, PackedBlobWriter
from lancelet.format.blob_values import Blob, BlobArray, BlobType, blob_array, blob_field

__all__ = [
    "DEFAULT_BLOB_BUFFER_SIZE",
    "Blob",
    "BlobArray",
    "BlobColumn",
    "BlobDescriptor",
    "BlobDescriptorArrayBuilder",
    "BlobFile",
    "BlobIterator",
    "BlobType",
    "DedicatedBlobWriter",
    "PackedBlobWriter",
    "blob_array",
    "blob_field",
]
