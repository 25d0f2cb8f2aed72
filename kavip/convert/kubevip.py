"""
kube-vip's ConfigMap and DaemonSet as VIPPools and KeepalivedGroups.

The ConfigMap ``kubevip`` of kube-vip-cloud-provider has a range of addresses for each namespace, and a global one for
all others. The variables of kube-vip's pods say where the addresses are, and what else kube-vip does.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from kavip import names
from kavip.api import kubevip
from kavip.api.kubevip import DHCP, GLOBAL, SEARCH_ORDER, SKIP_ENDS, DaemonSetSpec, PodSpec
from kavip.api.meta import LabelSelector, Requirement
from kavip.api.metallb import ForeignObject
from kavip.convert.imported import (
    NAME_LABEL,
    NO_COUNTERPART,
    Imported,
    ImportedGroup,
    ImportedPool,
    Remark,
    in_namespaces,
)
from kavip.convert.metallb import Wishes
from kavip.errors import BadInput
from kavip.ipam.ranges import Range, merged, parse_range, read_network, subtract

Json = dict[str, Any]

NAME: Final = "kube-vip"
_KEY: Final = re.compile(r"(cidr|range|interface|allow-share)-([a-z0-9-]+)")
_NO_NAME: Final = re.compile(r"[^a-z0-9]+")
"""What the name of an interface may have, and that of a group not."""
_OWN_PRIORITY: Final = 50
"""Of the pools of one namespace: it never uses the global one."""
_TRUE: Final = ("true", "True", "TRUE", "t", "T", "1")
_FEATURES: Final = {
    "bgp_enable": "kavip announces addresses by ARP and NDP, not by BGP",
    "vip_routingtable": "kavip announces addresses by ARP and NDP, not by routes",
    "vip_wireguard": "kavip has no tunnels",
    "lb_enable": "kavip does not balance the API server; its VIP is on one control plane node",
    "vip_ddns": "kavip does not use DHCP",
    "enable_upnp": "kavip does not forward ports on routers",
}
"""Variables that switch on what has no counterpart."""


def import_kubevip(objects: Iterable[ForeignObject], wishes: Wishes) -> Imported:
    """The pools and groups that do what *objects* do, with remarks about the rest."""
    found = _Import(wishes)
    ordered = sorted(objects, key=lambda each: each.subject)
    for each in ordered:
        if each.kind != names.CONFIG_MAP:
            found.read_pods(each)
    for each in ordered:
        if each.kind == names.CONFIG_MAP and each.metadata.name == kubevip.CONFIG_MAP:
            found.read_config(each)
    return Imported(tuple(found.pools), tuple(found.groups.values()), tuple(sorted(found.remarks)))


@dataclass(slots=True)
class _Import:
    """One run; *scheduling*: where kube-vip's pods run, as fields of a group. *groups*: by interface."""

    wishes: Wishes
    pools: list[ImportedPool] = field(default_factory=list)
    groups: dict[str, ImportedGroup] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)
    interface: str = ""
    scheduling: Json = field(default_factory=dict)

    def remark(self, subject: ForeignObject, path: str, text: str) -> None:
        """Add a remark."""
        self.remarks.append(Remark(subject.subject, path, text))

    # --- the pods -------------------------------------------------------------------------------------------------
    def read_pods(self, subject: ForeignObject) -> None:
        """The interface and the nodes of kube-vip, and what else its variables switch on."""
        try:
            is_pod = subject.kind == names.POD
            spec = msgspec.convert(subject.spec, PodSpec) if is_pod else _template(subject.spec)
        except msgspec.ValidationError as error:
            self.remark(subject, "spec", f"cannot be read: {error}")
            return
        for container in spec.containers:
            if settings := container.settings:
                self._read_settings(subject, settings, spec)

    def _read_settings(self, subject: ForeignObject, settings: Mapping[str, str], spec: PodSpec) -> None:
        for name, why in _FEATURES.items():
            if settings.get(name) in _TRUE:
                self.remark(subject, name, f"{NO_COUNTERPART}: {why}")
        if settings.get("cp_enable") in _TRUE:
            address = settings.get("address") or settings.get("vip_address") or "its address"
            text = f"{address} is the VIP of the API server: see `kavip render --static` and docs/howto/api-vip.md"
            self.remark(subject, "cp_enable", text)
        if settings.get("svc_enable") not in _TRUE:
            return
        self.interface = self.interface or settings.get("vip_servicesinterface") or settings.get("vip_interface", "")
        affinity = spec.affinity.node_affinity if spec.affinity else None
        found = {
            "nodeSelector": spec.node_selector,
            "affinity": {"nodeAffinity": affinity} if affinity else None,
            "tolerations": spec.tolerations,
        }
        self.scheduling = self.scheduling or {name: value for name, value in found.items() if value}

    # --- the ConfigMap --------------------------------------------------------------------------------------------
    def read_config(self, subject: ForeignObject) -> None:
        """A pool for each range that kube-vip-cloud-provider would use."""
        kinds: dict[str, dict[str, str]] = {"cidr": {}, "range": {}, "interface": {}, "allow-share": {}}
        for key, text in sorted(subject.data.items()):
            if match := _KEY.fullmatch(key):
                kinds[match[1]][match[2]] = text
            elif key not in (SEARCH_ORDER, SKIP_ENDS):
                self.remark(subject, f"data[{key}]", NO_COUNTERPART)
        if subject.data.get(SEARCH_ORDER, "asc") != "asc":
            self.remark(subject, f"data[{SEARCH_ORDER}]", f"{NO_COUNTERPART}: kavip gives the lowest free address")
        for namespace, text in kinds["allow-share"].items():
            if text in _TRUE:
                why = "Services share an address if they have the same kavip.io/sharing-key; the import sets one"
                self.remark(subject, f"data[allow-share-{namespace}]", why)
        used = _used_ranges(kinds["cidr"], kinds["range"])
        for kind in ("cidr", "range"):
            for namespace in sorted(kinds[kind].keys()):
                if used.get(namespace) != kind:
                    other = "range" if kind == "cidr" else "cidr"
                    text = f"never used: kube-vip-cloud-provider looks at {other} first, for all namespaces"
                    self.remark(subject, f"data[{kind}-{namespace}]", text)
        self._make_pools(subject, {name: (kind, kinds[kind][name]) for name, kind in used.items()}, kinds["interface"])

    def _make_pools(
        self, subject: ForeignObject, used: Mapping[str, tuple[str, str]], interfaces: Mapping[str, str]
    ) -> None:
        taken: tuple[Range, ...] = ()
        own = sorted(used.keys() - {GLOBAL})
        for namespace in (*own, *({GLOBAL} & used.keys())):  # the global one gives way where ranges overlap
            kind, text = used[namespace]
            path = f"data[{kind}-{namespace}]"
            if text.split("/")[0].strip() == DHCP:
                self.remark(subject, path, f"{NO_COUNTERPART}: kavip does not use DHCP")
                continue
            whole = merged(self._ranges(subject, path, kind, text))
            ranges = subtract(whole, taken)
            if list(ranges) != whole:
                self.remark(subject, path, "overlaps with an earlier one, and pools may not: that part is left out")
            if not ranges:
                continue
            taken = (*taken, *ranges)
            body: Json = {"addresses": [str(each) for each in ranges]}
            if namespace != GLOBAL:
                body |= {
                    "priority": _OWN_PRIORITY,
                    "namespaceSelector": msgspec.to_builtins(in_namespaces([namespace])),
                }
            elif own:
                others = LabelSelector(match_expressions=[Requirement(NAME_LABEL, "NotIn", own)])
                body["namespaceSelector"] = msgspec.to_builtins(others)
            group = self.wishes.group or self._group(subject, path, interfaces.get(namespace) or interfaces.get(GLOBAL))
            self.pools.append(ImportedPool(f"{NAME}-{namespace}", body, ranges, group))

    def _ranges(self, subject: ForeignObject, path: str, kind: str, text: str) -> Iterator[Range]:
        skips = kind == "cidr" and subject.data.get(SKIP_ENDS) in _TRUE
        for part in (each.strip() for each in text.split(",")):
            try:
                found = (read_network(part) if kind == "cidr" else None) or parse_range(part, path)
            except BadInput as error:
                self.remark(subject, path, str(error).removeprefix(f"{path}: "))
                continue
            is_wide = found.family == 4 and found.size > 2
            yield found._replace(first=found.first + 1, last=found.last - 1) if skips and is_wide else found

    def _group(self, subject: ForeignObject, path: str, interface: str | None) -> str:
        """The key of the group on *interface*; None: that of its pods, or the one that the user gives."""
        found = interface or self.interface or self.wishes.interface
        if not found:
            self.remark(subject, path, "no interface is known: give the interface of the addresses with --interface")
        if found not in self.groups:
            spec = {"interface": found, **self.scheduling}
            self.groups[found] = ImportedGroup(f"{self.wishes.namespace}/{self._free_name(found)}", spec)
        return self.groups[found].key

    def _free_name(self, interface: str) -> str:
        """A name for the group on *interface* that no other group has."""
        if not self.groups:
            return NAME
        part = _NO_NAME.sub("-", interface.lower()).strip("-")
        name = f"{NAME}-{part}" if part else NAME
        taken = {each.key.partition("/")[2] for each in self.groups.values()}
        return name if name not in taken else f"{name}-{len(self.groups) + 1}"


def _template(spec: Mapping[str, Any]) -> PodSpec:
    return msgspec.convert(spec, DaemonSetSpec).template.spec


def _used_ranges(cidrs: Mapping[str, str], ranges: Mapping[str, str]) -> dict[str, str]:
    """
    By namespace, which kind of key kube-vip-cloud-provider uses: ``cidr`` or ``range``.

    It looks for a cidr of the namespace, then for the global cidr, and only then for ranges.
    """
    found = dict.fromkeys(cidrs, "cidr")
    if GLOBAL not in cidrs:
        found |= {name: "range" for name in ranges if name not in cidrs}
    return found
