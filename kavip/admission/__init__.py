"""
Admission decisions: is this object accepted, and which defaults does it get. PURE.

* :mod:`~kavip.admission.policy`: ``review(request, snapshot) -> Verdict``; it chooses the chain of rules by kind;
* :mod:`~kavip.admission.chain`: named rules, and how their findings become a verdict;
* :mod:`~kavip.admission.services`, :mod:`~kavip.admission.groups`, :mod:`~kavip.admission.pools`: the chains of a kind;
* :mod:`~kavip.admission.poollinks`: the rules for interface and routing of a pool;
* :mod:`~kavip.admission.addresses`: the rule for requested addresses; it calls the controller's own decision;
* :mod:`~kavip.admission.externalips`: the rules for ``spec.externalIPs``: pools and the platform's CIDRs;
* :mod:`~kavip.admission.routeridusage`: how many virtual router IDs a group has left;
* :mod:`~kavip.admission.disruption`: what an edit of a running group disrupts;
* :mod:`~kavip.admission.mutation`: the defaults that kavip writes;
* :mod:`~kavip.admission.verdict`: a verdict, and the text of a finding; :mod:`~kavip.admission.text`: text helpers;
* :mod:`~kavip.admission.response`: the AdmissionReview response that carries a verdict;
* :mod:`~kavip.admission.registration`: the two webhook configurations as data.

Admission proposes, the leader decides: a review reserves nothing, and the controller repeats every check.
"""
