"""
Services with ``externalIPs``, which Kubernetes deprecates, become LoadBalancer Services with the same addresses.

1. The Service becomes a LoadBalancer of kavip's class, and requests its external IPs by name. They stay where they are.
2. kavip writes them to the status. The VIPs of a Service are the union of both lists, so no configuration changes.
3. The external IPs are removed.

The names of the VRRP instances, and so the VRIDs, follow from the name of the Service, which stays. A failure between
two steps leaves every address served: by ``externalIPs`` until 3, by the status after it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kavip import names
from kavip.api.address import Address, parse_address
from kavip.api.refusal import Refusal
from kavip.api.service import Service
from kavip.convert.sharing import sharers
from kavip.convert.steps import Done, Json, Step, Stop, Wait, Write, address_problem, after, annotated
from kavip.errors import BadInput
from kavip.ipam.ranges import FAMILIES
from kavip.ipam.record import read_record
from kavip.ipam.request import read_request
from kavip.names import Reason

FIELD = "spec.externalIPs"
WITHOUT: Json = {"spec": {"externalIPs": None}}
"""The last patch."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """
    How one Service gives up its external IPs.

    *service*: as it is. *addresses*: its external IPs. *request*: the patch that makes it a LoadBalancer which requests
    them; empty if it is one already.
    """

    service: Service
    addresses: tuple[Address, ...]
    request: Json

    @property
    def requesting(self) -> Service:
        """The Service after the first patch."""
        return after(self.service, self.request)

    @property
    def patch(self) -> Json:
        """Both patches in one, for a manifest."""
        return {**self.request, "spec": {**self.request.get("spec", {}), **WITHOUT["spec"]}}


def is_served(service: Service) -> bool:
    """Whether kavip announces the external IPs of *service*: its own annotation or class must select kavip."""
    return bool(service.spec.external_ips) and service.selects_kavip and not service.has_foreign_class


def conversion_of(service: Service, *, sharing_key: str = "") -> Conversion | Refusal | None:
    """
    How *service* is converted, with *sharing_key* if it shares an address; None if it has no external IPs of kavip.

    A Refusal names what in the Service prevents it. Whether kavip can assign the addresses is not known here.
    """
    if not is_served(service) or service.metadata.deletion_timestamp:
        return None
    addresses = _addresses(service)
    if isinstance(addresses, Refusal):
        return addresses
    if service.spec.type == "ExternalName":
        return Refusal(Reason.INVALID_REQUEST, "ExternalName: such a Service has no VIP; delete it", "spec.type")
    if service.spec.cluster_ip == "None":
        message = "None: a headless Service cannot be of type LoadBalancer; create one with a cluster IP beside it"
        return Refusal(Reason.INVALID_REQUEST, message, "spec.clusterIP")
    found = Conversion(service, addresses, _request(service, addresses, sharing_key))
    _, findings = read_request(found.requesting)
    return findings[0] if findings else found


def next_step(service: Service, *, sharing_key: str = "") -> Step:
    """The next step of *service*, as it is stored now."""
    found = conversion_of(service, sharing_key=sharing_key)
    if found is None:
        return Done()
    if isinstance(found, Refusal):
        return Stop(found)
    texts = ", ".join(map(str, found.addresses))
    if found.request:
        return Write(found.request, f"requests {texts} as a LoadBalancer")
    is_assigned = read_record(service).reason == Reason.ASSIGNED
    if is_assigned and set(found.addresses).issubset(service.ingress_addresses):
        return Write(WITHOUT, f"{texts} assigned, {FIELD} removed")
    return Wait(f"kavip has not assigned {texts}{address_problem(service)}")


def sharing_step(service: Service, *, key: str) -> Step:
    """The step before all others, of each Service that shares an address: it gets the sharing *key*."""
    if service.metadata.annotation(names.SHARING_KEY_ANNOTATION) == key:
        return Done()
    return Write(annotated(**{names.SHARING_KEY_ANNOTATION: key}), f"{names.SHARING_KEY_ANNOTATION}: {key}")


# --- the request ------------------------------------------------------------------------------------------------------
def _addresses(service: Service) -> tuple[Address, ...] | Refusal:
    """The external IPs of *service*, each once, in their order; a Refusal for what kavip does not announce."""
    texts = service.spec.external_ips or ()
    found: dict[Address, None] = {}
    for index, text in enumerate(texts[: names.MAX_EXTERNAL_IPS]):
        try:
            found[parse_address(text, f"{FIELD}[{index}]")] = None
        except BadInput as error:
            return Refusal.of(Reason.INVALID_REQUEST, error)
    total = len({*found, *(service.ingress_addresses if service.is_load_balancer else ())})
    if total > names.MAX_VIPS or len(texts) > names.MAX_EXTERNAL_IPS:
        message = f"{max(total, len(texts))} addresses, of which kavip announces {names.MAX_VIPS}: use several Services"
        return Refusal(Reason.INVALID_REQUEST, message, FIELD)
    return tuple(found)


def _request(service: Service, addresses: tuple[Address, ...], sharing_key: str) -> Json:
    """The patch that makes *service* request *addresses*; only what differs."""
    spec, meta, named = service.spec, service.metadata, service.requested_addresses
    new = [each for each in addresses if each not in named]
    annotations: dict[str, str] = {}
    if new:
        annotations[names.ADDRESSES_ANNOTATION] = ",".join(map(str, (*_annotated(service), *new)))
    if (count := _count(service, new)) > (service.address_count or 1):
        annotations[names.COUNT_ANNOTATION] = str(count)
    if sharing_key and meta.annotation(names.SHARING_KEY_ANNOTATION) != sharing_key:
        annotations[names.SHARING_KEY_ANNOTATION] = sharing_key
    changes: Json = {}
    if not service.is_load_balancer:
        changes = {"type": "LoadBalancer", "loadBalancerClass": names.LOAD_BALANCER_CLASS}
        if spec.type in ("", "ClusterIP"):  # it had no node ports, and needs none
            changes["allocateLoadBalancerNodePorts"] = False
    return {**annotated(**annotations), **({"spec": changes} if changes else {})}


def _annotated(service: Service) -> tuple[Address, ...]:
    """The addresses that the annotation of a LoadBalancer names already; on other types it had no effect."""
    legacy = service.spec.load_balancer_ip.strip()
    return tuple(each for each in service.requested_addresses if str(each) != legacy)


def _count(service: Service, new: Iterable[Address]) -> int:
    """How many addresses of each family *service* has to request, if it requests the *new* ones too."""
    assigned = service.ingress_addresses if service.is_load_balancer else ()
    further = Counter(each.family for each in new if each not in assigned)
    before = (service.address_count or 1) if service.is_load_balancer else 0
    return max(before + further[family] for family in FAMILIES)


# --- shared addresses -------------------------------------------------------------------------------------------------
def sharing_keys(services: Iterable[Service]) -> Mapping[str, str]:
    """
    The key that each of *services* needs to share its external IPs as a LoadBalancer; none for one that shares none.

    External IPs need no key, but assigned addresses do. A key that one of the Services has already is used for all.
    Whether they may share the addresses is decided later.
    """
    served = _served(services)
    return {key: _sharing_key([served[each] for each in keys]) for key, keys in connected(served.values()).items()}


def connected(services: Iterable[Service]) -> Mapping[str, tuple[str, ...]]:
    """For each of *services* that shares external IPs: all that it is connected with by shared ones, and itself."""
    return sharers({key: each.external_addresses for key, each in _served(services).items()})


def _served(services: Iterable[Service]) -> dict[str, Service]:
    return {each.key: each for each in services if is_served(each) and not each.metadata.deletion_timestamp}


def _sharing_key(services: list[Service]) -> str:
    """The first key that one of *services* has, or one made of their lowest address."""
    own = filter(None, (each.metadata.annotation(names.SHARING_KEY_ANNOTATION) for each in services))
    lowest = min(min(each.external_addresses) for each in services if each.external_addresses)
    return next(own, f"external-ips-{lowest}")
