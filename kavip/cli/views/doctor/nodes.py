"""
The nodes, as their agents and kubelets report them.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from shlex import quote
from typing import Final

from kavip import names
from kavip.api.agent import ProblemCode
from kavip.api.agentconfig import decode_config
from kavip.api.installation import PublishedConfig
from kavip.api.instant import read_instant
from kavip.cli.views.doctor.finding import Finding
from kavip.cli.views.doctor.inspection import AgentAnswer, Inspection
from kavip.reconcile.observed.agentstates import MASTER, NodeState

LATE: Final = timedelta(minutes=3)
"""After which a node must have mounted a configuration: the slowest kubelet takes a minute and a half."""
SKEW: Final = timedelta(seconds=5)
"""By which clocks differ for sure: a heartbeat takes some time, and its time of arrival is in whole seconds."""
_ONE_SECOND: Final = timedelta(seconds=1)
_MOST: Final = 5  # instances that a finding names
_STRICT_ARP: Final = (
    "kubectl get configmap kube-proxy --namespace=kube-system --output=yaml | sed 's/strictARP: false/strictARP: true/'"
    " | kubectl apply --filename=- && kubectl rollout restart daemonset kube-proxy --namespace=kube-system"
)
_KEEPALIVED: Final = (
    ProblemCode.KEEPALIVED_UNTESTED,
    ProblemCode.KEEPALIVED_EXITED,
    ProblemCode.KEEPALIVED_KILLED,
    ProblemCode.TRACK_FILES_IGNORED,
    ProblemCode.AGENT_FAILED,
)


def keepalived(found: Inspection) -> Iterator[Finding]:
    """Check that keepalived of each node runs what the node has mounted, in a version that kavip knows."""
    for each in found.agents:
        command = f"{_logs(each)} --all-containers --tail=50"
        if not each.state.running:
            yield Finding(f"node {each.node}: keepalived of group {each.group} does not answer", command)
        if each.state.refused:
            yield Finding(
                f"node {each.node} refuses the configuration of group {each.group}: {each.state.refused}", command
            )
        for note in each.state.notes:
            if note.code in _KEEPALIVED:
                yield Finding(f"node {each.node}: {note.message}", command)


def interfaces(found: Inspection) -> Iterator[Finding]:
    """Check that each node has the interfaces that its groups and pools name."""
    for each in found.agents:
        for interface in sorted(each.state.missing | {one.interface for one in each.state.excluded} - {""}):
            yield Finding(
                f"node {each.node} has no interface {interface}, which group {each.group} uses",
                f"kubectl edit keepalivedgroup {_options(each)}  # spec.interface, interfaceFromIP or nodeSelector",
            )


def strict_arp(found: Inspection) -> Iterator[Finding]:
    """Check that kube-proxy in IPVS mode answers no ARP for the VIPs of other nodes."""
    yield from (Finding(what, _STRICT_ARP) for what in _noted(found, ProblemCode.STRICT_ARP_OFF))


def reverse_path(found: Inspection) -> Iterator[Finding]:
    """Check that no reverse path filter drops requests for VIPs."""
    for what in _noted(found, ProblemCode.REQUESTS_FILTERED):
        yield Finding(
            what, "sysctl --all --pattern 'rp_filter|src_valid_mark'  # on that node; see howto/interfaces.md"
        )


def _noted(found: Inspection, code: ProblemCode) -> Iterator[str]:
    """What agents report with *code*, with the node."""
    for each in found.agents:
        yield from (f"node {each.node}: {note.message}" for note in each.state.notes if note.code is code)


def adverts(found: Inspection) -> Iterator[Finding]:
    """Check that the nodes of a group hear each other: no instance has several masters, twice in a row."""
    for group in sorted({each.group for each in found.agents}):
        answers = [each for each in found.agents if each.group == group]
        first = _masters((each.node, each.state) for each in answers)
        second = _masters((each.node, each.again) for each in answers if each.again is not None)
        by_nodes: dict[tuple[str, ...], list[str]] = {}
        for name, nodes in sorted(first.items()):
            still = nodes & second.get(name, set())
            if len(still) > 1:
                by_nodes.setdefault(tuple(sorted(still)), []).append(name)
        for masters, instances in by_nodes.items():
            named = ", ".join(instances[:_MOST]) + (f" and {len(instances) - _MOST} more" * (len(instances) > _MOST))
            yield Finding(
                f"group {group}: nodes {', '.join(masters)} are masters at once of {named}",
                f"tcpdump -n -i any 'ip proto 112 or ip6 proto 112'  # on node {quote(masters[0])}",
            )


def contested(answers: list[AgentAnswer]) -> bool:
    """Whether an instance has several masters in *answers*, so that the agents should be asked again."""
    return any(
        len(nodes) > 1
        for group in {each.group for each in answers}
        for nodes in _masters((each.node, each.state) for each in answers if each.group == group).values()
    )


def _masters(states: Iterator[tuple[str, NodeState]]) -> dict[str, set[str]]:
    """The nodes that are masters, by instance."""
    found: dict[str, set[str]] = {}
    for node, state in states:
        for instance in state.instances:
            if instance.state == MASTER:
                found.setdefault(instance.name, set()).add(node)
    return found


def clocks(found: Inspection) -> Iterator[Finding]:
    """Check that the clock of each node agrees with that of the API server which takes its heartbeats."""
    for each in found.heartbeats:
        sent, taken = read_instant(each.spec.renew_time or ""), read_instant(each.metadata.written)
        off = _skew(sent, taken)
        if off:
            side = "ahead of" if off > timedelta() else "behind"
            seconds = round(abs(off.total_seconds()))
            yield Finding(
                f"the clock of node {each.metadata.name} is {seconds} s {side} that of the API server",
                "timedatectl timesync-status  # on that node and on the control plane; or: chronyc tracking",
            )


def _skew(sent: datetime | None, taken: datetime | None) -> timedelta:
    """By how much the clock that read *sent* is ahead of the one that read *taken* later; 0 if that is in doubt."""
    if sent is None or taken is None:
        return timedelta()
    off = sent - taken
    return off if off > SKEW + _ONE_SECOND or -off > SKEW else timedelta()


def config_delay(found: Inspection) -> Iterator[Finding]:
    """
    Check that kubelet brings the configuration of a group to its nodes in time.

    The latest heartbeat shows what time it is, by the same clock by which the configuration was written.
    """
    now = read_instant(max((each.metadata.written for each in found.heartbeats), default=""))
    for each in found.agents:
        config = found.configs.get(each.group)
        published, written = _published(config), read_instant(config.metadata.written) if config else None
        if not published or now is None or written is None or each.mounted == published or now - written < LATE:
            continue
        minutes = int((now - written).total_seconds() // 60)
        yield Finding(
            f"node {each.node} has not mounted the configuration of group {each.group} that was written {minutes} "
            "minutes ago",
            f"journalctl --unit=kubelet --since=-10min  # on node {quote(each.node)}",
        )


def _published(config: PublishedConfig | None) -> str:
    """The hash of the configuration in *config*; "" if it has none."""
    found = decode_config((config.data or {}).get(names.AGENT_KEY, "")) if config else None
    return found.config_hash if found else ""


def _options(answer: AgentAnswer) -> str:
    namespace, _, name = answer.group.partition("/")
    return f"{quote(name)} --namespace={quote(namespace)}"


def _logs(answer: AgentAnswer) -> str:
    namespace, _, name = answer.group.partition("/")
    return f"kubectl logs --namespace={quote(namespace)} --selector={names.GROUP_LABEL}={quote(name)}"
