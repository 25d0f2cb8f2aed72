"""What kavip made of the pod template stays, whatever a patch tries."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kavip import names
from kavip.podtemplate.guard import apply_patch
from tests.podtemplate.test_guard import EVERYTHING, Json, own
from tests.support.examples import examples


def hostile() -> st.SearchStrategy[Json]:
    """Patches that aim at the parts of kavip, by their names and by directives."""
    anything: st.SearchStrategy[Any] = st.sampled_from(
        [None, {}, [], "x", {"$patch": "delete"}, {"$patch": "replace"}, {"privileged": True}]
    )
    paths = st.sampled_from(["/run/kavip", "/run", "/etc/kavip/config", "/x"])
    variables = st.fixed_dictionaries(
        {"name": st.sampled_from(["TMPDIR", "KAVIP_AGENT_PORT", "A"])},
        optional={"value": st.just("x"), "$patch": st.just("delete")},
    )
    mounts = st.fixed_dictionaries(
        {"mountPath": paths},
        optional={"name": st.sampled_from(["run", "x"]), "$patch": st.just("delete"), "readOnly": st.booleans()},
    )
    replace = st.just({"$patch": "replace"})
    container = st.fixed_dictionaries(
        {"name": st.sampled_from(["agent", "keepalived", "config-setup", "x"])},
        optional={
            "$patch": st.sampled_from(["delete", "replace", "merge"]),
            "$retainKeys": st.just(["name"]),
            "image": st.just("x"),
            "resources": st.just({"limits": {"memory": "1Gi"}}),
            "env": st.lists(variables | replace, max_size=2),
            "volumeMounts": st.lists(mounts | replace, max_size=2),
            **dict.fromkeys(("command", "lifecycle", "livenessProbe", "ports", "securityContext"), anything),
        },
    )
    volume = st.fixed_dictionaries(
        {"name": st.sampled_from(["run", "config", "x"])},
        optional={"$patch": st.just("delete"), "emptyDir": anything, "secret": st.just({"secretName": "x"})},
    )
    spec = st.fixed_dictionaries(
        {},
        optional={
            "$patch": st.sampled_from(["replace", "delete"]),
            "containers": st.lists(container | replace, max_size=3),
            "initContainers": st.lists(container | replace, max_size=2),
            "volumes": st.lists(volume | replace, max_size=2),
            "priorityClassName": st.just("x"),
            **dict.fromkeys(("hostNetwork", "nodeSelector", "securityContext", "tolerations"), anything),
        },
    )
    labels = st.dictionaries(st.sampled_from([names.GROUP_LABEL, "a", "$patch"]), st.sampled_from(["x", "replace"]))
    metadata = st.fixed_dictionaries({}, optional={"labels": labels, "annotations": anything})
    return st.fixed_dictionaries({}, optional={"metadata": metadata, "spec": spec})


@examples(2000)
@given(patch=hostile(), privileges=st.sampled_from([frozenset(), EVERYTHING]))
def test_what_kavip_made_survives_any_patch_that_is_used(patch: Json, privileges: frozenset[str]) -> None:
    """Label, fields of the pod, volumes, and of its containers everything but resources and pull policy."""
    made = own()
    found = apply_patch(made, patch, privileges=privileges)
    if found.refusals:
        return
    outcome = found.template
    assert outcome["metadata"]["labels"][names.GROUP_LABEL] == made["metadata"]["labels"][names.GROUP_LABEL]
    plain = made["spec"].keys() - {"containers", "initContainers", "volumes", "priorityClassName"}
    assert {key: outcome["spec"].get(key) for key in plain} == {key: made["spec"][key] for key in plain}
    assert all(each in outcome["spec"]["volumes"] for each in made["spec"]["volumes"])
    for field in ("containers", "initContainers"):
        for mine in made["spec"][field]:
            (there,) = [each for each in outcome["spec"][field] if each["name"] == mine["name"]]
            fixed = (mine.keys() | there.keys()) - {"resources", "imagePullPolicy", "env", "volumeMounts"}
            assert {key: there.get(key) for key in fixed} == {key: mine[key] for key in fixed}
            assert all(each in there[key] for key in ("env", "volumeMounts") for each in mine[key])
