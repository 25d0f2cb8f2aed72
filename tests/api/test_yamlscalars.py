"""A plain scalar is text, a number or a boolean here exactly where it is for the real kubectl."""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from hack.testbed.programs import Programs
from kavip.api import yamldocuments, yamlscalars

KINDS = {"str": "text", "bool": "boolean", "int": "number", "float": "number", "null": "null"}
SCALARS = {
    "text": "tRue e3 1e 1e+ 1:30 2001-99-99 2001-01-01 0x 0b2 0o8 0x_ 0.0.0 1.2.3 192.0.2.1 --1 0-1 0xg ._5 .0_ nULL _1"
    " 12e4567 1e400 0xffffffffffffffffffff",
    "boolean": "y Y n N yes No on OFF true False",
    "number": "0 1 -0 +1 00 08 019 017 0o17 0O17 0x1F 0X1F 0b1 0B1 1e3 1.5e3 1_0e3 1e3_0 1_000 5_ 1. -.5 .5 1E5 +.5e1"
    " +_1 -_194 0b+1 0b-1 17e_4 18446744073709551616 070707070707070707070707",
    "null": "null ~ Null",
}
KEYS = {
    "1e3": "1000",
    "08": "8",
    "1.0": "1",
    "1e400": "1e400",
    "0x10": "16",
    "y": "true",
    "1.2345678": "1.2345678",
    "1.2345679": "1.2345679",
    "20240101.5": "2.0240102e+07",
    "1e6": "1e+06",
    "123456.0": "123456",
    "1234567.0": "1.234567e+06",
    "1e-4": "0.0001",
    "1.5e-5": "1.5e-05",
    "-2.5": "-2.5",
    "16777217.0": "1.6777216e+07",
    "0.1": "0.1",
    "3.4e38": "3.4e+38",
    "1e-45": "1e-45",
    "-0.0": "-0",
    "1e39": ".inf",
    "1e-60": "0",
}
CASES = [(word, kind) for kind, words in SCALARS.items() for word in words.split()]


def manifest(word: str) -> str:
    """A ConfigMap with *word*."""
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: x}}\ndata:\n  k: {word}\n"


def kind_of(value: object) -> str:
    """What *value* is in JSON."""
    match value:
        case bool():
            return "boolean"
        case int() | float():
            return "number"
    return "null" if value is None else "text"


@pytest.mark.parametrize(("word", "kind"), CASES, ids=[word for word, _ in CASES])
def test_the_kind_of_a_plain_scalar(word: str, kind: str) -> None:
    """By its tag, and as the reader reads it."""
    assert KINDS[yamlscalars.tag_of(word).rpartition(":")[2]] == kind
    (document,) = yamldocuments.read("f", manifest(word))
    assert kind_of(document.content["data"]["k"]) == kind


def test_the_values_of_numbers() -> None:
    """As kubectl prints them."""
    numbers = {
        "8e1": 80,
        "080": 80,
        "2.5": 2.5,
        "017": 15,
        "0o17": 15,
        "0X1F": 31,
        "0B1": 1,
        "08": 8,
        "1_000": 1000,
        "-0b1": -1,
        "1_0e3": 10_000,
    }
    text = "".join(f'"{word}": {word}\n' for word in numbers)
    (document,) = yamldocuments.read("f", text)
    assert document.content == numbers
    assert [type(document.content[word]) for word in ("8e1", "2.5")] == [int, float]


def test_numbers_as_keys_are_the_texts_of_their_values() -> None:
    """As kubectl writes them."""
    (document,) = yamldocuments.read("f", "".join(f"{key}: a\n" for key in KEYS))
    assert list(document.content) == list(KEYS.values())


@pytest.mark.apiserver
def test_kubectl_writes_the_same_keys(programs: Programs) -> None:
    """The real kubectl, without a server."""
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata:\n"
    command = [programs["kubectl"], "label", "--local", "--filename=-", "a=b", "--output=json"]
    done = subprocess.run(
        command, input=text + "".join(f"  {key}: a\n" for key in KEYS), capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["data"].keys() == set(KEYS.values())


@pytest.mark.apiserver
def test_kubectl_reads_the_same(programs: Programs) -> None:
    """The real kubectl, without a server."""

    def read(word: str) -> str:
        command = [programs["kubectl"], "label", "--local", "--filename=-", "a=b", "--output=json"]
        done = subprocess.run(command, input=manifest(word), capture_output=True, text=True, check=True)
        return kind_of(json.loads(done.stdout)["data"].get("k"))

    with ThreadPoolExecutor(2) as pool:
        found = dict(zip((word for word, _ in CASES), pool.map(read, (word for word, _ in CASES)), strict=True))
    assert found == dict(CASES)
