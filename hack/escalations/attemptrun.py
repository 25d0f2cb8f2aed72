"""Makes the attempts with each account; then again without the policy that refused them, one policy after another."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hack.escalations.account import RBAC, Account, Answer
from hack.escalations.attempt import POLICIES, Attempt
from hack.escalations.attempts import allowed, attempts
from hack.escalations.stage import Stage
from hack.testbed.process import wait_for

_PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Result:
    """The *answer* that an *attempt* got, by the *account* of that name; *is_holder*: it is the one of the attempt."""

    attempt: Attempt
    account: str
    answer: Answer
    is_holder: bool

    @property
    def wanted(self) -> Collection[str]:
        """What may refuse it: an account that has less rights may be refused by something else."""
        return {self.attempt.refused_by} if self.is_holder else {RBAC, *POLICIES}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The results: of what kavip does, of the attempts, and of the attempts *without* the policy that refused them."""

    ordinary: Sequence[Result]
    refused: Sequence[Result]
    without: Sequence[Result]

    def findings(self) -> list[str]:
        """What is not as it should be."""
        found = [_found(each, "accepted") for each in self.refused if each.answer.is_accepted]
        found += [
            _found(each, f"want {each.attempt.refused_by}, got {each.answer.refused_by}")
            for each in self.refused
            if not each.answer.is_accepted and each.answer.refused_by not in each.wanted
        ]
        found += [
            _found(each, f"refused: {each.answer.refused_by}")
            for each in (*self.ordinary, *self.without)
            if not each.answer.is_accepted
        ]
        return found

    def table(self) -> str:
        """Which attempt is refused by what, for each account."""
        accounts = list(dict.fromkeys(each.account for each in self.refused))
        rows: dict[str, list[str]] = {}
        for each in self.refused:
            by = "ACCEPTED" if each.answer.is_accepted else each.answer.refused_by
            rows.setdefault(each.attempt.what, []).append(by)
        lines = [f"| attempt | {' | '.join(accounts)} |", f"|---|{'---|' * len(accounts)}"]
        lines += [f"| {what} | {' | '.join(by)} |" for what, by in rows.items()]
        return "\n".join(lines)


def _found(result: Result, what: str) -> str:
    return f"{result.account}: {result.attempt.what}: {what}"


def run_attempts(stage: Stage) -> Verdict:
    """Make every attempt."""
    every = attempts(stage.group)
    ordinary = [_result(stage, each, stage.account(each.component)) for each in allowed(stage.group)]
    refused = [_result(stage, each, account) for each in every for account in stage.accounts]
    without: list[Result] = []
    for policy in POLICIES:
        without += _without(stage, policy, [each for each in every if each.refused_by == policy])
    return Verdict(ordinary, refused, without)


def _result(stage: Stage, attempt: Attempt, account: Account) -> Result:
    is_holder = account is stage.account(attempt.component)
    return Result(attempt, account.name, account.send(attempt.request), is_holder)


def _without(stage: Stage, policy: str, refused: Sequence[Attempt]) -> list[Result]:
    """The results of *refused*, the attempts that *policy* refuses, while it has no binding."""
    kind = "validatingadmissionpolicybinding"
    binding = json.loads(stage.plane.kubectl("get", kind, policy, "-o", "json").stdout)

    def refuses() -> bool:
        return stage.account(refused[0].component).send(refused[0].request).refused_by == policy

    stage.plane.kubectl("delete", kind, policy)
    wait_for(f"{policy} is gone", lambda: not refuses(), timeout=_PATIENCE, interval=0.2)
    results = [_result(stage, each, stage.account(each.component)) for each in refused]
    metadata = {name: binding["metadata"][name] for name in ("name", "labels")}
    stage.plane.kubectl("create", "--filename=-", input=json.dumps({**binding, "metadata": metadata}))
    wait_for(f"{policy} is back", refuses, timeout=_PATIENCE, interval=0.2)
    return results
