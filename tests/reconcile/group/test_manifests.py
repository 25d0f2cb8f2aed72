"""The objects of a group as data."""

import base64
import dataclasses
import gzip
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.agent.main import AgentSettings
from kavip.api.group import CaFrom, Check, KeepalivedGroup, PasswordAuth, SecretRef
from kavip.names import Exporter
from kavip.reconcile.group import manifests
from kavip.reconcile.rollout.configmap import NodeSettings, PublishedRevisions, Revision, secret_folder, settings_of
from tests.support import build

IMAGE = "registry.example/kavip:1.2.3"


def daemon_set(group: KeepalivedGroup, port: int = 9650) -> dict[str, Any]:
    """The DaemonSet of *group*, with kavip's own image."""
    return manifests.daemon_set(group, image=IMAGE, port=port, secrets=published("", group).secrets)


def published(text: str, group: KeepalivedGroup) -> PublishedRevisions:
    """*text* as the published revision of *group*."""
    return PublishedRevisions(Revision(text, "0123456789abcdef", settings_of(group)))


def pod_of(group: KeepalivedGroup) -> dict[str, Any]:
    """The pod spec of *group*'s DaemonSet."""
    spec: dict[str, Any] = daemon_set(group)["spec"]["template"]["spec"]
    return spec


def containers(group: KeepalivedGroup) -> dict[str, dict[str, Any]]:
    """The containers of *group*'s pods by name, with the init container."""
    pod = pod_of(group)
    return {each["name"]: each for each in (*pod["initContainers"], *pod["containers"])}


def env(container: dict[str, Any]) -> dict[str, str]:
    """The environment by variable: its value, or its field path."""
    return {each["name"]: each.get("value") or each["valueFrom"]["fieldRef"]["fieldPath"] for each in container["env"]}


def test_agents_get_the_allowed_cidrs() -> None:
    """The agent gets the administrator's CIDRs in a variable; without CIDRs there is no variable."""
    variable = "KAVIP_AGENT_ALLOWED_CIDRS"
    body = manifests.daemon_set(build.group(), image=IMAGE, port=9650, allowed_cidrs="10.0.0.0/8,192.0.2.0/24")
    pod = body["spec"]["template"]["spec"]
    agent_config = {each["name"]: env(each).get(variable) for each in (*pod["initContainers"], *pod["containers"])}
    assert agent_config == {
        names.SETUP_CONTAINER: "10.0.0.0/8,192.0.2.0/24",
        names.AGENT_CONTAINER: "10.0.0.0/8,192.0.2.0/24",
        names.KEEPALIVED_CONTAINER: None,
    }
    settings = AgentSettings(node_name="n1", allowed_cidrs=agent_config[names.AGENT_CONTAINER] or "")
    assert [str(each) for each in settings.networks] == ["10.0.0.0/8", "192.0.2.0/24"]
    assert not any(variable in env(each) for each in containers(build.group()).values())


def test_agents_get_the_exporter_of_their_metric_names() -> None:
    """The variable exists only for another exporter than the default: adding it would restart all agents."""
    variable = "KAVIP_AGENT_METRICS"
    body = manifests.daemon_set(build.group(), image=IMAGE, port=9650, metrics="mehdy")
    (agent,) = [
        each for each in body["spec"]["template"]["spec"]["containers"] if each["name"] == names.AGENT_CONTAINER
    ]
    assert AgentSettings(node_name="n1", metrics=env(agent)[variable]).metrics == Exporter.MEHDY
    assert not any(variable in env(each) for each in containers(build.group()).values())


def test_objects_are_named_and_labelled_as_the_group_and_owned_by_it() -> None:
    """Name, namespace, label and controlling owner follow the group."""
    group = build.group("lb/edge")
    for manifest in (daemon_set(group), manifests.config_map(group, published("x\n", group))):
        assert manifest["metadata"] == {
            "name": "edge",
            "namespace": "lb",
            "labels": {"keepalivedGroup": "edge"},
            "ownerReferences": [
                {
                    "apiVersion": "redhatcop.redhat.io/v1alpha1",
                    "kind": "KeepalivedGroup",
                    "name": "edge",
                    "uid": "uid-lb/edge",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        }


def test_the_selector_is_that_of_keepalived_operator() -> None:
    """The selector is immutable, so it must be what keepalived-operator wrote."""
    spec = daemon_set(build.group("lb/edge"))["spec"]
    assert spec["selector"] == {"matchLabels": {"keepalivedGroup": "edge"}}
    assert spec["template"]["metadata"] == {"labels": {"keepalivedGroup": "edge"}}


def test_the_config_map_holds_the_text_and_agent_json() -> None:
    """Two keys: keepalived's text as it is, and sorted JSON."""
    group = build.group(
        "lb/edge",
        interface_from_ip="192.0.2.1",
        password_auth=PasswordAuth(secret_ref=SecretRef(name="vrrp")),
    )
    data = manifests.config_map(group, published("vrrp\n", group))["data"]
    assert data["keepalived.conf"] == "vrrp\n"
    assert list(json.loads(data["agent.json"]).items()) == [
        ("authentication", True),
        ("configHash", "0123456789abcdef"),
        ("group", "lb/edge"),
        ("interfaceFromIP", "192.0.2.1"),
        ("password", f"{secret_folder('vrrp')}/password"),
        ("secret", "vrrp"),
        ("secretKey", "password"),
        ("switchAt", ""),
    ]


def test_agent_json_has_the_checks() -> None:
    """Checks are sorted by name. Without checks the key is absent, so other groups stay unchanged."""
    group = build.group(checks=[Check("web", "http://127.0.0.1/", fail_after=2), Check("api", "kube-apiserver")])
    agent_config = json.loads(manifests.config_map(group, published("", group))["data"]["agent.json"])
    assert [each["name"] for each in agent_config["checks"]] == ["api", "web"]
    assert msgspec.convert(agent_config["checks"], list[Check]) == sorted(
        group.spec.checks or [], key=lambda each: each.name
    )


def test_a_default_that_the_api_server_wrote_is_left_out() -> None:
    """
    A group from a file and the same group from the cluster give the same bytes, which `kavip plan --diff` compares.
    """
    short = {"name": "api", "url": "kube-apiserver", "caFrom": {"name": "ca"}}
    filled = {
        "name": "api",
        "url": "kube-apiserver",
        "caFrom": {"name": "ca", "key": "ca.crt", "kind": "ConfigMap"},
        "intervalSeconds": 2,
        "timeoutSeconds": 1,
        "failAfter": 3,
        "succeedAfter": 2,
        "onFailure": "Fault",
    }
    for check in (short, filled):
        group = build.group(checks=[msgspec.json.decode(msgspec.json.encode(check), type=Check)])
        agent_config = json.loads(manifests.config_map(group, published("", group))["data"]["agent.json"])
        assert agent_config["checks"] == [short]


def test_cas_of_checks_are_mounted_by_their_names() -> None:
    """
    A CA comes from a ConfigMap or Secret; the API server's is the cluster's own. A missing one does not stop the pod.
    """
    checks = [
        Check("web", "https://a/", ca_from=CaFrom("web-ca", key="ca.pem")),
        Check("vault", "https://b/", ca_from=CaFrom("vault-tls", kind="Secret")),
        Check("api", "kube-apiserver"),
        Check("public", "https://c/"),
        Check("plain", "kubelet"),
    ]
    group = build.group(checks=checks)
    cluster = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "api.crt"}], "optional": True}
    vault = {"name": "vault-tls", "items": [{"key": "ca.crt", "path": "vault.crt"}], "optional": True}
    web = {"name": "web-ca", "items": [{"key": "ca.pem", "path": "web.crt"}], "optional": True}
    sources = [{"configMap": cluster}, {"secret": vault}, {"configMap": web}]
    assert pod_of(group)["volumes"][-1] == {"name": "ca", "projected": {"sources": sources, "defaultMode": 0o444}}
    mount = {"name": "ca", "mountPath": "/etc/kavip/ca", "readOnly": True}
    mounted = {name: mount in each["volumeMounts"] for name, each in containers(group).items()}
    assert mounted == {"config-setup": True, "keepalived": False, "agent": True}
    assert pod_of(build.group(checks=checks[3:])) == pod_of(build.group())


def test_the_next_text_is_published_beside_the_current_one() -> None:
    """It is compressed, the same bytes every time, and published with its instant; without a switch it is absent."""
    group = build.group("lb/edge")
    plain, moment = published("vrrp\n", group), datetime(2026, 3, 1, 12, 0, 10, tzinfo=UTC)
    switching = replace(plain, next=Revision("next\n", "fedcba9876543210", NodeSettings("192.0.2.1")), switch_at=moment)
    body, again = (manifests.config_map(group, switching) for _ in range(2))
    assert body == again
    assert gzip.decompress(base64.b64decode(body["binaryData"]["next.conf.gz"])) == b"next\n"
    meta = json.loads(body["data"]["agent.json"])
    assert meta["switchAt"] == "2026-03-01T12:00:10.000Z"
    assert body["metadata"]["annotations"] == {"kavip.io/switch-at": meta["switchAt"]}
    assert "annotations" not in manifests.config_map(group, plain)["metadata"]
    assert meta["next"] == {"configHash": "fedcba9876543210", "interfaceFromIP": "192.0.2.1"}
    assert "binaryData" not in manifests.config_map(group, plain)
    assert {"next", "nextHash"}.isdisjoint(json.loads(manifests.config_map(group, plain)["data"]["agent.json"]))


def test_pods_have_the_nodes_network_and_no_token() -> None:
    """The pod uses the node's network, shares its processes among its containers, and has no API token."""
    pod = pod_of(build.group())
    expected = {
        "hostNetwork": True,
        "dnsPolicy": "Default",
        "shareProcessNamespace": True,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "tolerations": [{"operator": "Exists"}],
    }
    assert {key: pod[key] for key in expected} == expected
    assert not {"nodeSelector", "affinity", "serviceAccountName", "priorityClassName", "imagePullSecrets"} & pod.keys()


def test_keepalived_runs_without_privilege_and_shell() -> None:
    """keepalived is started directly, with two capabilities and a read-only root."""
    keepalived = containers(build.group())["keepalived"]
    assert keepalived["command"][0] == "/usr/sbin/keepalived"
    assert "--use-file=/run/kavip/keepalived.conf" in keepalived["command"]
    assert keepalived["command"][-1] == "--config-id=$(NODE_NAME)"
    assert env(keepalived) == {"NODE_NAME": "spec.nodeName", "TMPDIR": "/run/kavip"}
    assert keepalived["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW"]},
    }


def test_pods_mount_no_folder_of_the_node() -> None:
    """Their volumes are objects of the cluster and empty folders."""
    group = build.group(password_auth=PasswordAuth(secret_ref=SecretRef(name="vrrp")))
    assert {key for each in pod_of(group)["volumes"] for key in each} == {"name", "configMap", "emptyDir", "secret"}


def test_the_agent_may_ask_the_lan() -> None:
    """Unless its image is pinned: an older agent needs no NET_RAW, and the right would replace all pods."""
    for group, wanted in (
        (build.group(), ["NET_ADMIN", "NET_RAW"]),
        (build.group(agent_image="registry.example/kavip:old"), ["NET_ADMIN"]),
    ):
        for name in ("config-setup", "agent"):
            assert containers(group)[name]["securityContext"]["capabilities"]["add"] == wanted


def test_the_first_configuration_is_written_before_keepalived_starts() -> None:
    """The init container runs the agent once, with the same environment and mounts."""
    group = build.group()
    setup, agent = containers(group)["config-setup"], containers(group)["agent"]
    assert setup["command"] == ["kavip", "agent", "--once"]
    assert agent["command"] == ["kavip", "agent"]
    assert {key: setup[key] for key in ("image", "env", "volumeMounts")} == {
        key: agent[key] for key in ("image", "env", "volumeMounts")
    }


def test_every_use_of_the_port_names_the_groups_port() -> None:
    """Container port, probes and the agent's own setting name one port."""
    keepalived, agent = daemon_set(build.group(), port=9651)["spec"]["template"]["spec"]["containers"]
    assert agent["ports"] == [{"name": "metrics", "containerPort": 9651, "hostPort": 9651, "protocol": "TCP"}]
    assert keepalived["livenessProbe"]["httpGet"] == {"path": "/livez", "port": 9651, "scheme": "HTTP"}
    assert keepalived["lifecycle"]["preStop"]["httpGet"]["port"] == 9651
    assert agent["livenessProbe"]["httpGet"] == {"path": "/state", "port": 9651, "scheme": "HTTP"}
    assert agent["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": 9651, "scheme": "HTTP"}
    assert env(agent)["KAVIP_AGENT_PORT"] == "9651"


def test_keepalived_stops_after_the_hand_over_if_the_agent_is_of_this_version() -> None:
    """An agent of ``agentImage`` may not know the page, and with its own images a pod stays as it is at an upgrade."""
    hooks = {name: each.get("lifecycle") for name, each in containers(build.group()).items()}
    page = {"path": "/handover", "port": 9650, "host": "127.0.0.1", "scheme": "HTTP"}
    assert hooks == {"config-setup": None, "keepalived": {"preStop": {"httpGet": page}}, "agent": None}
    assert "lifecycle" not in containers(build.group(agent_image="registry.example/agent:7"))["keepalived"]


def test_every_variable_of_the_agent_is_a_setting_of_it() -> None:
    """The agent refuses unknown variables and invalid values."""
    group = build.group(password_auth=PasswordAuth(secret_ref=SecretRef(name="vrrp")))
    given = {name.removeprefix("KAVIP_AGENT_").lower(): text for name, text in env(containers(group)["agent"]).items()}
    known = {each.name: each.type for each in dataclasses.fields(AgentSettings)}
    assert given.keys() <= known.keys()
    fixed: dict[str, Any] = {"node_name": "n1", "node_ip": "192.0.2.11", "port": int(given["port"])}
    settings = AgentSettings(**{**given, **fixed})
    assert (settings.config_dir, settings.run_dir) == ("/etc/kavip/config", "/run/kavip")
    assert settings.password_dir == "/etc/kavip/password"


def test_the_default_image_means_kavips_own() -> None:
    """
    keepalived-operator's default image means kavip's; any other image runs as written; the agent is always kavip's.
    """
    default = containers(build.group())
    other = containers(build.group(image="registry.example/keepalived:2.3"))
    own_agent = containers(build.group(agent_image="registry.example/agent:7"))
    assert [each["image"] for each in default.values()] == [IMAGE] * 3
    assert other["keepalived"]["image"] == "registry.example/keepalived:2.3"
    assert other["agent"]["image"] == IMAGE
    assert own_agent["agent"]["image"] == own_agent["config-setup"]["image"] == "registry.example/agent:7"
    assert own_agent["keepalived"]["image"] == IMAGE


def test_without_a_password_no_secret_is_mounted() -> None:
    """Without a named Secret nothing is mounted."""
    assert [volume["name"] for volume in pod_of(build.group())["volumes"]] == ["config", "run"]
    assert "KAVIP_AGENT_PASSWORD_DIR" not in env(containers(build.group())["agent"])


def test_the_password_reaches_the_agent_alone() -> None:
    """The Secret is mounted, optionally, where the agent reads it, and not into keepalived's container."""
    group = build.group(password_auth=PasswordAuth(secret_ref=SecretRef(name="vrrp"), secret_key="pass"))
    volume, name = pod_of(group)["volumes"][-1], f"password-{secret_folder('vrrp')}"
    assert volume == {"name": name, "secret": {"secretName": "vrrp", "optional": True, "defaultMode": 0o400}}
    assert env(containers(group)["agent"])["KAVIP_AGENT_PASSWORD_DIR"] == "/etc/kavip/password"
    mounts = {name: [mount["name"] for mount in each["volumeMounts"]] for name, each in containers(group).items()}
    assert mounts == {
        "config-setup": ["run", "config", name],
        "keepalived": ["run"],
        "agent": ["run", "config", name],
    }


def test_the_pull_policy_is_that_of_kavips_own_image() -> None:
    """Containers with an image that the group names keep the usual policy."""
    for own, other in ((build.group(), None), (build.group(image="registry.example/keepalived:2"), "keepalived")):
        body = manifests.daemon_set(own, image=IMAGE, port=9650, pull_policy="Always")
        pod = body["spec"]["template"]["spec"]
        found = {each["name"]: each["imagePullPolicy"] for each in (*pod["initContainers"], *pod["containers"])}
        assert found == {name: "IfNotPresent" if name == other else "Always" for name in found}


def test_the_pod_has_the_pull_secrets_of_group_and_administrator() -> None:
    """Those of the group come first, and none twice."""
    group = build.group(image_pull_secrets=[{"name": "own"}, {"name": "b"}])
    body = manifests.daemon_set(group, image=IMAGE, port=9650, pull_secrets=("a", "b"))
    assert body["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "own"}, {"name": "b"}, {"name": "a"}]


def test_the_pod_has_the_groups_fields_for_pods() -> None:
    """The pod has the group's fields for pods, and strings stay strings."""
    group = build.group(
        node_selector={"edge": "true"},
        daemonset_pod_priority_class_name="system-node-critical",
        daemonset_pod_annotations={"prometheus.io/port": "9650"},
        tolerations=[],
        affinity={"nodeAffinity": {}},
        image_pull_secrets=[{"name": "pull"}],
        service_account_name="keepalived",
        resources={"limits": {"memory": "64Mi"}},
        update_strategy={"type": "OnDelete"},
    )
    spec, pod = daemon_set(group)["spec"], pod_of(group)
    assert spec["updateStrategy"] == {"type": "OnDelete"}
    assert spec["template"]["metadata"]["annotations"] == {"prometheus.io/port": "9650"}
    assert pod["nodeSelector"] == {"edge": "true"}
    assert pod["priorityClassName"] == "system-node-critical"
    assert pod["tolerations"] == []
    assert pod["affinity"] == {"nodeAffinity": {}}
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert pod["serviceAccountName"] == "keepalived"
    assert all(each["resources"] == {"limits": {"memory": "64Mi"}} for each in containers(group).values())


def test_a_digest_depends_on_content_alone() -> None:
    """The order of keys does not change the digest; every value does."""
    assert manifests.digest({"a": 1, "b": [2]}) == manifests.digest({"b": [2], "a": 1})
    assert manifests.digest({"a": 1}) != manifests.digest({"a": 2})


@pytest.mark.parametrize("port", [9650, 9700])
def test_objects_are_plain_json(port: int) -> None:
    """Every object is the same after encoding and decoding JSON."""
    manifest = daemon_set(build.group(node_selector={"a": "b"}), port=port)
    assert json.loads(json.dumps(manifest)) == manifest
    assert names.DEFAULT_IMAGE not in json.dumps(manifest)
