"""An OCI layout: blobs by digest, and an index that names what the layout holds."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from hack.release import tarball

INDEX: Final = "application/vnd.oci.image.index.v1+json"
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
CONFIG: Final = "application/vnd.oci.image.config.v1+json"
LAYER: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
_REF: Final = "org.opencontainers.image.ref.name"

Document = dict[str, Any]


class Hashing:
    """A stream that passes bytes on, and knows their digest and count."""

    def __init__(self, out: IO[bytes] | Any) -> None:
        self._out = out
        self._hash = hashlib.sha256()
        self.size = 0

    @property
    def digest(self) -> str:
        """The digest of what was written."""
        return f"sha256:{self._hash.hexdigest()}"

    def write(self, data: bytes) -> int:
        """Write *data*."""
        self._hash.update(data)
        self.size += len(data)
        self._out.write(data)
        return len(data)

    def flush(self) -> None:
        """Nothing is kept back."""

    def tell(self) -> int:
        """The position, which tarfile asks for."""
        return self.size


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout in a *folder*."""

    folder: Path

    def add(self, media_type: str, content: bytes, **more: Any) -> Document:
        """Add a blob; return its descriptor."""
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self._blob(digest).write_bytes(content)
        return {"mediaType": media_type, "digest": digest, "size": len(content), **more}

    def add_json(self, media_type: str, document: Mapping[str, Any], **more: Any) -> Document:
        """Add a document as JSON."""
        return self.add(media_type, encoded(document), **more)

    def add_layer(self, write: Callable[[IO[bytes]], None]) -> tuple[Document, str]:
        """Add what *write* writes, compressed; return its descriptor, and the digest of what was written."""
        draft = self._blob("sha256:draft")
        with draft.open("wb") as file:
            outer = Hashing(file)
            with tarball.compressed(outer) as stream:  # type: ignore[arg-type]  # only write() is called
                inner = Hashing(stream)
                write(inner)  # type: ignore[arg-type]  # the same
        draft.rename(self._blob(outer.digest))
        return {"mediaType": LAYER, "digest": outer.digest, "size": outer.size}, inner.digest

    def finish(self, content: Document, *, name: str) -> None:
        """Write the files that make the folder a layout with one *content*."""
        entry = {**content, "annotations": {_REF: name}}
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}
        (self.folder / "index.json").write_bytes(encoded(index))
        (self.folder / "oci-layout").write_bytes(encoded({"imageLayoutVersion": "1.0.0"}))

    def archive(self, path: Path, *, epoch: int) -> None:
        """Write the layout as a tar."""
        with path.open("wb") as out:
            tarball.write(out, tarball.files_below(self.folder), epoch=epoch)

    def _blob(self, digest: str) -> Path:
        path = self.folder / "blobs" / digest.replace(":", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def encoded(document: Mapping[str, Any]) -> bytes:
    """JSON with sorted keys."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
