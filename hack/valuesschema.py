"""The specs of groups and pools in the schema of the chart's values: the schemas of the CustomResourceDefinitions."""

import json
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[1]
SCHEMA: Final = ROOT / "charts" / "kavip" / "values.schema.json"
_DEFINITIONS: Final = {"groupSpec": "keepalivedgroups.redhatcop.redhat.io", "poolSpec": "vippools.kavip.io"}
_OWN: Final = ("description", "default")  # keywords that only documentation and the API server use


def page(text: str) -> str:
    """*text*, the schema, with the definitions of specs at its end as the CustomResourceDefinitions have them."""
    first = next(iter(_DEFINITIONS))
    kept = text[: text.index(f'    "{first}": ')]
    return kept + ",\n".join(_definition(name, crd) for name, crd in _DEFINITIONS.items()) + "\n  }\n}\n"


def _definition(name: str, crd: str) -> str:
    """One definition, with a line for each field of the spec."""
    found = yaml.safe_load((ROOT / "config" / "crd" / "bases" / f"{crd}.yaml").read_text())
    (version,) = found["spec"]["versions"]
    spec = closed(version["schema"]["openAPIV3Schema"]["properties"]["spec"])
    fields = ",\n".join(f"        {json.dumps(key)}: {json.dumps(each)}" for key, each in spec["properties"].items())
    others = "".join(
        f"      {json.dumps(key)}: {json.dumps(value)},\n" for key, value in spec.items() if key != "properties"
    )
    return f'    "{name}": {{\n{others}      "properties": {{\n{fields}\n      }}\n    }}'


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI *schema* of a CustomResourceDefinition as JSON schema that permits no unknown field."""
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key.startswith("x-") or key in _OWN:
            continue
        if key == "properties":
            made[key] = {name: closed(each) for name, each in value.items()}
        else:
            made[key] = closed(value) if isinstance(value, dict) else value
    if "properties" in made:
        made["additionalProperties"] = False
    return made
