"""What a patch may make of the pod template of a group, judged on the template that kavip makes."""

from typing import Any

import pytest

from kavip import names
from kavip.api.group import CaFrom, Check, KeepalivedGroup
from kavip.podtemplate.guard import DEEPEST, MOST_ITEMS, MOST_VALUES, apply_patch
from kavip.podtemplate.permissions import NOTHING_PERMITTED, Privilege, TemplatePermissions
from kavip.podtemplate.skeleton import check_pod_template, skeleton
from kavip.reconcile.group.manifests import daemon_set
from tests.support import build

Json = dict[str, Any]
CONFINED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"], "add": ["NET_RAW"]},
}
EVERYTHING = frozenset(Privilege)


def own(**spec: Any) -> Json:
    """The template that kavip makes."""
    found: Json = daemon_set(build.group(**spec), image="kavip:1", port=9650, secrets=("vrrp",))["spec"]["template"]
    return found


def spec_of(**spec: Any) -> Json:
    """A patch of the pod."""
    return {"spec": spec}


def container(**fields: Any) -> Json:
    """A patch that adds a container, with the privileges that it may have."""
    return spec_of(containers=[{"name": "x", "image": "x:1", "securityContext": CONFINED, **fields}])


def of_agent(**fields: Any) -> Json:
    """A patch of the agent."""
    return spec_of(containers=[{"name": "agent", **fields}])


def volume(**source: Any) -> Json:
    """A patch that adds a volume."""
    return spec_of(volumes=[{"name": "x", **source}])


def context(**fields: Any) -> Json:
    """A patch that adds a container with these fields of ``securityContext``."""
    return container(securityContext={**CONFINED, **fields})


REFUSED: dict[str, tuple[str, Json]] = {
    "the selected label": ("metadata.labels[keepalivedGroup]", {"metadata": {"labels": {names.GROUP_LABEL: "x"}}}),
    "all metadata": ("metadata.labels[keepalivedGroup]", {"metadata": {"$patch": "replace"}}),
    "a malformed label": ("metadata.labels[a b]", {"metadata": {"labels": {"a b": "x"}}}),
    "an annotation of kavip": ("metadata.annotations[kavip.io/x]", {"metadata": {"annotations": {"kavip.io/x": "1"}}}),
    "a runtime's annotation": (
        "metadata.annotations[cdi.k8s.io/x]",
        {"metadata": {"annotations": {"cdi.k8s.io/x": "1"}}},
    ),
    "an owner": ("metadata.finalizers", {"metadata": {"finalizers": ["x/y"]}}),
    "another field": ("status", {"status": {}}),
    "the network": ("spec.hostNetwork", spec_of(hostNetwork=False)),
    "processes of the host": ("spec.hostPID", spec_of(hostPID=True)),
    "the process namespace": ("spec.shareProcessNamespace", spec_of(shareProcessNamespace=None)),
    "a token": ("spec.automountServiceAccountToken", spec_of(automountServiceAccountToken=True)),
    "the account": ("spec.serviceAccountName", spec_of(serviceAccountName="x")),
    "nodes": ("spec.nodeSelector", spec_of(nodeSelector={"a": "b"})),
    "the runtime": ("spec.runtimeClassName", spec_of(runtimeClassName="x")),
    "the pod's securityContext": ("spec.securityContext", spec_of(securityContext={"$patch": "replace"})),
    "a container without an image": (
        "spec.containers[y].image",
        spec_of(containers=[{"name": "y", "securityContext": CONFINED}]),
    ),
    "a container whose name is no label": (
        "spec.containers[0].name",
        spec_of(containers=[{"name": "Y\nz", "image": "x:1", "securityContext": CONFINED}]),
    ),
    "a number as a label": ("metadata.labels[tier]", {"metadata": {"labels": {"a": "x", "tier": 1}}}),
    "a map in place of a list": ("spec.volumes", spec_of(volumes={"name": "x"})),
    "a number in a list": ("spec.volumes[0].name", spec_of(volumes=[{"name": 5}])),
    "a short grace": ("spec.terminationGracePeriodSeconds", spec_of(terminationGracePeriodSeconds=5)),
    "a long grace": ("spec.terminationGracePeriodSeconds", spec_of(terminationGracePeriodSeconds=10**9)),
    "kavip's container": ("spec.containers[agent]", spec_of(containers=[{"name": "agent", "$patch": "delete"}])),
    "kavip's containers": ("spec.containers[agent]", spec_of(containers=[{"$patch": "replace"}])),
    "kavip's first container": ("spec.initContainers[config-setup]", spec_of(initContainers=None)),
    "kavip's name": (
        "spec.initContainers[agent].name",
        spec_of(initContainers=[{"name": "agent", "image": "x", "securityContext": CONFINED}]),
    ),
    "the name by which pods of keepalived-operator are known": (
        "spec.containers[config-reloader].name",
        container(name="config-reloader"),
    ),
    "kavip's image": ("spec.containers[agent].image", of_agent(image="x")),
    "kavip's command": ("spec.containers[agent].command", of_agent(command=["sh"])),
    "kavip's args": ("spec.containers[agent].args", of_agent(args=["x"])),
    "kavip's port": ("spec.containers[agent].ports", of_agent(ports=[{"containerPort": 80}])),
    "kavip's probe": ("spec.containers[agent].livenessProbe", of_agent(livenessProbe=None)),
    "kavip's privileges": (
        "spec.containers[agent].securityContext",
        of_agent(securityContext={"privileged": True}),
    ),
    "kavip's preStop": (
        "spec.containers[keepalived].lifecycle",
        spec_of(containers=[{"name": "keepalived", "lifecycle": {"$patch": "delete"}}]),
    ),
    "kavip's variable": (
        "spec.containers[keepalived].env[TMPDIR]",
        spec_of(containers=[{"name": "keepalived", "env": [{"name": "TMPDIR", "value": "/x"}]}]),
    ),
    "a setting of kavip": (
        "spec.containers[agent].env[KAVIP_AGENT_METRICS]",
        of_agent(env=[{"name": "KAVIP_AGENT_METRICS", "value": "x"}]),
    ),
    "all variables of kavip": (
        "spec.containers[keepalived].env[NODE_NAME]",
        spec_of(containers=[{"name": "keepalived", "env": [{"$patch": "replace"}]}]),
    ),
    "kavip's mount": (
        "spec.containers[agent].volumeMounts[/run/kavip]",
        of_agent(volumeMounts=[{"mountPath": "/run/kavip", "$patch": "delete"}]),
    ),
    "a mount in kavip's": (
        "spec.containers[agent].volumeMounts[/run/kavip/x]",
        of_agent(volumeMounts=[{"name": "x", "mountPath": "/run/kavip/x"}]),
    ),
    "a mount over kavip's": (
        "spec.containers[agent].volumeMounts[//etc/./kavip/]",
        of_agent(volumeMounts=[{"name": "x", "mountPath": "//etc/./kavip/"}]),
    ),
    "kavip's volume": ("spec.volumes[run]", spec_of(volumes=[{"name": "run", "emptyDir": {"medium": ""}}])),
    "a volume that kavip may add": ("spec.volumes[password-x].name", spec_of(volumes=[{"name": "password-x"}])),
    "a path of the host": ("spec.volumes[x].hostPath", volume(hostPath={"path": "/"})),
    "a claim": ("spec.volumes[x].persistentVolumeClaim", volume(persistentVolumeClaim={"claimName": "x"})),
    "a driver": ("spec.volumes[x].csi", volume(csi={"driver": "x"})),
    "a projected token": (
        "spec.volumes[x].projected.sources[0].serviceAccountToken",
        volume(projected={"sources": [{"serviceAccountToken": {"path": "x"}}]}),
    ),
    "no securityContext": ("spec.containers[x].securityContext", container(securityContext=None)),
    "a privileged container": ("spec.containers[x].securityContext", context(privileged=True)),
    "escalation": ("spec.containers[x].securityContext", context(allowPrivilegeEscalation=None)),
    "a writable root": ("spec.containers[x].securityContext", context(readOnlyRootFilesystem=False)),
    "a capability": (
        "spec.containers[x].securityContext",
        context(capabilities={"drop": ["ALL"], "add": ["SYS_ADMIN"]}),
    ),
    "default capabilities": ("spec.containers[x].securityContext", context(capabilities={})),
    "a profile": ("spec.containers[x].securityContext", context(seccompProfile={"type": "Unconfined"})),
    "a device": ("spec.containers[x].volumeDevices", container(volumeDevices=[{"name": "x", "devicePath": "/x"}])),
    "a hook by kubelet": (
        "spec.containers[x].lifecycle.preStop",
        container(lifecycle={"preStop": {"httpGet": {"port": 80}}}),
    ),
    "a container twice": (
        "spec.containers[x]",
        spec_of(
            containers=[
                {"name": "x", "image": "evil"},
                *container()["spec"]["containers"],
                {"$patch": "replace"},
            ]
        ),
    ),
    "a directive at a wrong place": (
        "spec.containers[0].$deleteFromPrimitiveList/args",
        container(**{"$deleteFromPrimitiveList/args": ["x"]}),
    ),
    "an unknown directive": ("spec.$patch", spec_of(**{"$patch": "merge"})),
    "another type": ("spec.containers", spec_of(containers="x")),
    "an item without name": ("spec.containers", spec_of(containers=[{"image": "x"}])),
    "many values": ("", {"spec": {f"a{n}": n for n in range(MOST_VALUES)}}),
    "a long list": ("", spec_of(tolerations=[{}] * (MOST_ITEMS + 1))),
}
ALLOWED: dict[str, Json] = {
    "nothing": {},
    "priority": spec_of(priorityClassName="system-node-critical"),
    "labels and annotations": {
        "metadata": {"labels": {"team": "net"}, "annotations": {"prometheus.io/scrape": "true"}}
    },
    "resources of kavip": of_agent(resources={"limits": {"memory": "64Mi"}}, imagePullPolicy="Always"),
    "a variable and a mount of kavip": of_agent(
        env=[{"name": "TZ", "value": "UTC"}], volumeMounts=[{"name": "x", "mountPath": "/usr/share/zoneinfo"}]
    ),
    "the same value": spec_of(hostNetwork=True),
    "a container": container(
        args=["x"],
        env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "x", "key": "y"}}}],
        lifecycle={"preStop": {"sleep": {"seconds": 1}}},
        volumeMounts=[{"name": "run", "mountPath": "/run/kavip", "readOnly": True}],
    ),
    "a first container": spec_of(
        initContainers=[{"name": "x", "image": "x", "restartPolicy": "Always", "securityContext": CONFINED}]
    ),
    "volumes": spec_of(
        volumes=[
            {"name": "a", "emptyDir": {}},
            {"name": "b", "projected": {"sources": [{"configMap": {"name": "x"}}, {"secret": {"name": "x"}}]}},
        ]
    ),
    "the pod": spec_of(dnsPolicy="ClusterFirstWithHostNet", hostAliases=[{"ip": "192.0.2.1", "hostnames": ["x"]}]),
}
PRIVILEGED: dict[str, tuple[Privilege, Json]] = {
    "hostPath": (Privilege.HOST_PATH, volume(hostPath={"path": "/var/log"})),
    "privileged": (Privilege.PRIVILEGED, context(privileged=True, capabilities={"add": ["SYS_ADMIN"]})),
    "token": (
        Privilege.SERVICE_ACCOUNT_TOKEN,
        volume(projected={"sources": [{"serviceAccountToken": {"path": "x"}}]}),
    ),
}


def fields(patch: Json, privileges: frozenset[str] = frozenset()) -> list[str]:
    """The fields of the refusals, without their common beginning."""
    found = apply_patch(own(), patch, privileges=privileges)
    return [each.field.removeprefix("spec.podTemplate").removeprefix(".") for each in found.refusals]


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_patch_may_not_change(case: str) -> None:
    """The refusal names the field, the value and the remedy; no privilege permits it where none is named for it."""
    field, patch = REFUSED[case]
    found = apply_patch(own(), patch, privileges=frozenset())
    assert any(
        each.field.removeprefix("spec.podTemplate").removeprefix(".").startswith(field) for each in found.refusals
    )
    assert all(each.message.count(": ") >= 2 for each in found.refusals)


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({"metadata": {"labels": {"a": "x", "tier": 1}}}, "metadata.labels[tier]: 1: Expected `str`, got `int`"),
        (spec_of(volumes={"name": "x"}), 'spec.volumes: {"name": "x"}: Expected `array'),
        (container(lifecycle={"preStop": {"sleep": {}}, "postStart": 5}), "lifecycle[postStart]: 5: Expected `object"),
    ],
)
def test_a_value_of_a_wrong_type_is_named(patch: Json, message: str) -> None:
    """With its key and itself."""
    (refusal,) = apply_patch(own(), patch, privileges=frozenset()).refusals
    assert message in refusal.message


@pytest.mark.parametrize("case", ALLOWED)
def test_what_a_patch_may_change(case: str) -> None:
    """These patches are used, and everything that kavip made is still there."""
    outcome = apply_patch(own(), ALLOWED[case], privileges=frozenset())
    assert outcome.refusals == ()
    assert {each["name"] for each in own()["spec"]["volumes"]} <= {
        each["name"] for each in outcome.template["spec"]["volumes"]
    }


@pytest.mark.parametrize("case", PRIVILEGED)
def test_each_privilege_permits_one_thing(case: str) -> None:
    """With it the patch is used, and without it the others do not help."""
    privilege, patch = PRIVILEGED[case]
    assert fields(patch, frozenset({privilege})) == []
    assert fields(patch, EVERYTHING - {privilege}) != []


def test_privileged_leaves_the_containers_of_kavip_as_they_are() -> None:
    """No privilege changes kavip's own containers."""
    for patch in (of_agent(securityContext={"privileged": True}), spec_of(hostPID=True)):
        assert fields(patch, EVERYTHING) != []


def test_a_deep_patch_is_refused() -> None:
    """Levels are bounded before anything recurses."""
    deep: Any = "x"
    for _ in range(10_000):
        deep = {"a": deep}
    (found,) = apply_patch(own(), {"spec": deep}, privileges=frozenset()).refusals
    assert f"more than {DEEPEST} levels" in found.message


@pytest.mark.parametrize(
    "patch",
    [
        container(**{"x" * 100_000: 1}),
        spec_of(containers=[{"name": "x" * 100_000, **{f"f{number}": 1 for number in range(1500)}}]),
        of_agent(volumeMounts=[{"name": "x", "mountPath": "/" + "x" * 100_000}]),
        {"metadata": {"labels": {"x" * 100_000: ""}}},
    ],
    ids=["a field", "a container", "a mount", "a label"],
)
def test_long_names_cost_little(patch: Json) -> None:
    """Each finding repeats the names above it, so many faults below a long name would fill the memory."""
    (found,) = apply_patch(own(), patch, privileges=frozenset()).refusals
    assert "a name of more than 1,024 characters" in found.message
    assert len(found.message) + len(found.field) < 4096


GROUPS: dict[str, KeepalivedGroup] = {
    "plain": build.group(),
    "with everything": build.group(
        service_account_name="vip",
        node_selector={"a": "b"},
        affinity={"nodeAffinity": {}},
        tolerations=[],
        daemonset_pod_annotations={"a": "b"},
        checks=[Check(name="a", url="https://example.com", ca_from=CaFrom(name="ca"))],
    ),
}


@pytest.mark.parametrize("name", GROUPS)
def test_admission_knows_the_shape_of_the_template(name: str) -> None:
    """The template that admission assumes has the fields of the real one that a patch could meet."""
    group = GROUPS[name]
    assumed = skeleton(group)
    made = daemon_set(group, image="kavip:1", port=9650, secrets=("vrrp",))["spec"]["template"]
    plain = made["spec"].keys() - {"containers", "initContainers", "volumes"}
    assert {key: assumed["spec"].get(key) for key in plain} == {key: made["spec"][key] for key in plain}
    for field in ("containers", "initContainers"):
        for one, other in zip(assumed["spec"][field], made["spec"][field], strict=True):
            assert one["name"] == other["name"]
            variables = {each["name"] for each in other["env"] if not each["name"].startswith("KAVIP_")}
            assert {each["name"] for each in one["env"]} == variables
            paths = {each["mountPath"] for each in one["volumeMounts"]}
            assert {
                path
                for path in (each["mountPath"] for each in other["volumeMounts"])
                if not path.startswith(tuple(paths))
            } == set()


@pytest.mark.parametrize("case", [*REFUSED, *ALLOWED])
def test_admission_refuses_what_the_controller_refuses(case: str) -> None:
    """Both have the same refusals of a patch, and admission accepts what the controller uses."""
    patch = REFUSED[case][1] if case in REFUSED else ALLOWED[case]
    group = build.group(pod_template=patch)
    assert bool(check_pod_template(group, privileges=frozenset())) == (case in REFUSED)


def test_permissions_are_lists_of_names() -> None:
    """A namespace is permitted by its name or by the asterisk; by default none is."""
    assert NOTHING_PERMITTED.problem("lb")
    given = TemplatePermissions.of(" lb, net,", "hostPath")
    assert not given.problem("lb")
    assert "does not name 'shop'" in given.problem("shop")
    assert given.privileges == {Privilege.HOST_PATH}
    assert not TemplatePermissions.of("*", "").problem("shop")
