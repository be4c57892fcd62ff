"""Opening checkpoint storage by its url or path."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from penstock.checkpoint.local_storage import LocalStorage
from penstock.checkpoint.object_storage import ObjectStorage
from penstock.common.storage import FileMissingError, Storage
from penstock.errors import ConfigurationError

__all__ = ["FileMissingError", "LocalStorage", "ObjectStorage", "Storage", "open_storage"]


def open_storage(url_or_path: str, *, create: bool = True) -> Storage:
    """Plain paths and file:// urls are LocalStorage; s3://, gs://, az://, memory:/// are ObjectStorage."""
    scheme, separator, _ = url_or_path.partition("://")
    if not separator:
        return LocalStorage(url_or_path, create=create)
    if scheme == "file":
        return LocalStorage(_path_of_file_url(url_or_path), create=create)
    return ObjectStorage(url_or_path)


def _path_of_file_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise ConfigurationError(
            f"checkpoint storage {url!r} names a host or no folder; write file:///absolute/path with three slashes"
        )
    return unquote(parts.path)
