"""
Services in manifests on disk, and their files after merge patches: comments and all other lines stay.
"""

import codecs
import copy
import os
import stat
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import yaml

from kavip.api.service import Service
from kavip.api.yamldocuments import Document, node_at, read_yaml
from kavip.cli.sources.files import files_in, flattened, no_objects, read_object, text_of
from kavip.cli.views.manifestedit import TextEdit, apply_edits, edits_of
from kavip.errors import BadFile
from kavip.reconcile.mergepatch import patched


@dataclass(frozen=True, slots=True)
class FoundService:
    """A Service, and where it stands: at *path* in *document*."""

    service: Service
    document: Document
    path: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """One file, its documents and the Services in it."""

    file: Path
    where: str
    text: str
    documents: tuple[Document, ...]
    services: tuple[FoundService, ...]

    def rewritten(self, patches: Mapping[str, Mapping[str, Any]]) -> str:
        """
        The text after *patches*, by the keys of Services.

        Raises :class:`BadFile` for a change that cannot be made without changing anything else.
        """
        concerned = [each for each in self.services if patches.get(each.service.key)]
        if not concerned:
            return self.text
        edits: list[TextEdit] = []
        for each in concerned:
            node = node_at(each.document.node, each.path) if each.document.node else None
            if node is not None:
                edits += edits_of(self.text, node, patches[each.service.key])
        text = apply_edits(self.text, edits)
        if not _is_as_expected(self, text, patches):
            keys = ", ".join(each.service.key for each in concerned)
            problem = f"{keys}: cannot be edited in place, for example because of an anchor; edit it by hand"
            raise BadFile(self.where, problem, line=concerned[0].document.line(concerned[0].path))
        return text

    def write(self, text: str) -> None:
        """Replace the content of the file; standard input becomes standard output."""
        if str(self.file) == "-":
            click.echo(text, nl=False)
            return
        try:
            _replace(self.file.resolve(), text)
        except OSError as error:
            raise BadFile(self.where, f"cannot be written: {error.strerror}") from None


def _replace(file: Path, text: str) -> None:
    """Put *text* in place of the content of *file* at once: who is interrupted leaves the old content or the new."""
    with file.open("rb") as stream:
        mark = codecs.BOM_UTF8 if stream.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8 else b""
        before = os.fstat(stream.fileno())
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            with suppress(PermissionError):  # only root may give a file away
                os.fchown(handle, before.st_uid, before.st_gid)
            os.fchmod(handle, stat.S_IMODE(before.st_mode))
            stream.write(mark + text.encode())
            stream.flush()
            os.fsync(handle)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_manifests(paths: Iterable[Path]) -> tuple[list[Manifest], list[BadFile]]:
    """
    The files in *paths* with their Services, and what cannot be read: also that there is no object of any kind.

    Raises :class:`BadFile` for a Service that is there twice: what one becomes would be wrong for the other.
    """
    found: list[Manifest] = []
    unread: list[BadFile] = []
    files: dict[Path, None] = {}
    paths = tuple(paths)
    for path in paths:
        try:
            files.update(dict.fromkeys(files_in(path)))
        except BadFile as error:
            unread.append(error)
    for file in files:
        try:
            found.append(_read(file))
        except BadFile as error:
            unread.append(error)
    if not unread and not any(part for each in found for one in each.documents for part in flattened(one.content)):
        unread.append(no_objects(paths))
    _check_unique(found)
    return found, unread


def _check_unique(manifests: Iterable[Manifest]) -> None:
    places: dict[str, str] = {}
    for manifest in manifests:
        for each in manifest.services:
            key, line = each.service.key, each.document.line(each.path)
            if key in places:
                problem = f"Service {key} is already in {places[key]}; give the files of one cluster at a time"
                raise BadFile(manifest.where, problem, document=each.document.number, line=line)
            places[key] = f"{manifest.where}:{line}"


def _read(file: Path) -> Manifest:
    where, text = text_of(file)
    documents = tuple(read_yaml(where, text))
    services = []
    for document in documents:
        for path, content in flattened(document.content):
            if isinstance(content, dict) and content.get("kind") == "Service":
                found = read_object(where, document, path, content)
                if isinstance(found, Service):
                    services.append(FoundService(found, document, path))
    return Manifest(file, where, text, documents, tuple(services))


def _is_as_expected(manifest: Manifest, text: str, patches: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether *text* holds the documents of *manifest* after *patches*, and nothing else."""
    expected = [copy.deepcopy(each.content) for each in manifest.documents]
    numbers = {each.number: index for index, each in enumerate(manifest.documents)}
    for each in manifest.services:
        if patch := patches.get(each.service.key):
            index = numbers[each.document.number]
            expected[index] = _replaced(expected[index], each.path, patch)
    try:
        return [each.content for each in read_yaml(manifest.where, text)] == expected
    except (BadFile, yaml.YAMLError):
        return False


def _replaced(content: Any, path: str, patch: Mapping[str, Any]) -> Any:
    """*content* with *patch* applied to the object at *path*."""
    if path == "$":
        return patched(content, patch)
    head, _, index = path.rpartition(".items[")
    parent = content
    for word in head.split(".items[")[1:]:
        parent = parent["items"][int(word[:-1])]
    at = int(index[:-1])
    parent["items"][at] = patched(parent["items"][at], patch)
    return content


def rewritten_all(
    manifests: Iterable[Manifest], patches: Mapping[str, Mapping[str, Any]]
) -> tuple[list[tuple[Manifest, str]], list[BadFile]]:
    """The manifests that *patches* change, each with its new text; and those that cannot be edited."""
    found: list[tuple[Manifest, str]] = []
    failed: list[BadFile] = []
    for each in manifests:
        try:
            text = each.rewritten(patches)
        except BadFile as error:
            failed.append(error)
        else:
            found += [(each, text)] if text != each.text else []
    return found, failed
