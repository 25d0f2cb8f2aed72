"""Pod templates and strategic merge patches of them, as hypothesis draws them: few names, so that items meet."""

from typing import Any

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "c"])
PORTS = st.sampled_from([80, 81])
Json = dict[str, Any]


def _items(key: str, values: st.SearchStrategy[Any], fields: dict[str, st.SearchStrategy[Any]]) -> Any:
    """Lists of maps with different values of *key*."""
    item = st.fixed_dictionaries({key: values}, optional=fields)
    return st.lists(item, max_size=3, unique_by=lambda each: each[key])


def _env() -> Any:
    return _items("name", NAMES, {"value": NAMES})


def _mounts() -> Any:
    return _items("mountPath", st.sampled_from(["/a", "/b"]), {"name": NAMES, "readOnly": st.booleans()})


def _ports() -> Any:
    return _items("containerPort", PORTS, {"name": NAMES, "hostPort": PORTS})


def _containers() -> Any:
    resources = st.dictionaries(st.sampled_from(["limits", "requests"]), st.dictionaries(NAMES, NAMES, max_size=2))
    fields = {
        "args": st.lists(NAMES, max_size=2),
        "env": _env(),
        "image": NAMES,
        "ports": _ports(),
        "resources": resources,
        "stdin": st.booleans(),
        "volumeMounts": _mounts(),
    }
    return _items("name", NAMES, fields)


def _volumes() -> Any:
    fields = {"emptyDir": st.just({}), "secret": st.fixed_dictionaries({"secretName": NAMES})}
    return _items("name", NAMES, fields)


def templates() -> st.SearchStrategy[Json]:
    """Pod templates."""
    texts = st.dictionaries(NAMES, NAMES, max_size=2)
    metadata = st.fixed_dictionaries({}, optional={"annotations": texts, "finalizers": st.lists(NAMES, unique=True)})
    spec = st.fixed_dictionaries(
        {"containers": _containers()},
        optional={
            "hostAliases": _items("ip", st.sampled_from(["192.0.2.1", "192.0.2.2"]), {"hostnames": st.lists(NAMES)}),
            "hostNetwork": st.booleans(),
            "initContainers": _containers(),
            "nodeSelector": texts,
            "terminationGracePeriodSeconds": PORTS,
            "tolerations": st.lists(st.fixed_dictionaries({"key": NAMES}), max_size=2),
            "volumes": _volumes(),
        },
    )
    return st.fixed_dictionaries({"metadata": metadata, "spec": spec})


@st.composite
def patches(draw: st.DrawFn) -> Json:
    """Templates with nulls, and with directives at the places where kubectl knows them."""
    patch: Json = draw(templates())
    spec = patch["spec"]
    for field in draw(st.sets(st.sampled_from(["hostNetwork", "nodeSelector", "tolerations", "volumes"]))):
        spec[field] = None
    for item in [each for field in ("containers", "volumes") for each in spec.get(field) or ()]:
        _direct_item(draw, item)
    for field, key in (("containers", "name"), ("initContainers", "name"), ("hostAliases", "ip")):
        if isinstance(spec.get(field), list):
            _direct_list(draw, spec, field, key)
    finalizers = patch["metadata"].get("finalizers")
    if finalizers is not None and draw(st.booleans()):
        patch["metadata"]["$deleteFromPrimitiveList/finalizers"] = patch["metadata"].pop("finalizers")
    elif finalizers is not None and draw(st.booleans()):
        patch["metadata"]["$setElementOrder/finalizers"] = draw(st.permutations([*finalizers, "d"]))
    if isinstance(spec.get("nodeSelector"), dict):
        spec["nodeSelector"] |= draw(st.sampled_from([{}, {"$patch": "replace"}, {"$patch": "delete"}]))
    return patch


def _direct_item(draw: st.DrawFn, item: Json) -> None:
    """Let a container or volume be deleted, lose its other keys, or lose the value of one."""
    match draw(st.sampled_from(["", "", "delete", "retain", "null"])):
        case "delete":
            item["$patch"] = "delete"
        case "retain":
            item["$retainKeys"] = [each for each in item if not each.startswith("$")]
        case "null":
            item |= {draw(st.sampled_from(["env", "image", "secret"])): None}


def _direct_list(draw: st.DrawFn, spec: Json, field: str, key: str) -> None:
    """Let the list replace the old one, or order it."""
    match draw(st.sampled_from(["", "", "replace", "order", "other order"])):
        case "replace":
            spec[field].append({"$patch": "replace"})
        case "order":
            kept = [each[key] for each in spec[field] if "$patch" not in each]
            more = [each for each in draw(st.lists(NAMES, unique=True)) if key == "name" and each not in kept]
            spec[f"$setElementOrder/{field}"] = [{key: each} for each in (*kept, *more)]
        case "other order":
            spec[f"$setElementOrder/{field}"] = [{"name": each} for each in draw(st.permutations(["a", "b", "c"]))]
