"""
Admission decisions: may this object be so, and which defaults does it get. PURE.

* :mod:`~kavip.admission.policy`: ``review(review, snapshot) -> Verdict``; it chooses the chain of checks by kind;
* :mod:`~kavip.admission.chain`: named checks, and how their findings become a verdict;
* :mod:`~kavip.admission.services`, :mod:`~kavip.admission.groups`, :mod:`~kavip.admission.pools`: the checks of a kind;
* :mod:`~kavip.admission.addresses`: the addresses that a Service asks for, decided as the controller decides;
* :mod:`~kavip.admission.externalips`: ``spec.externalIPs``, pools and the platform's CIDRs;
* :mod:`~kavip.admission.vrids`: how many virtual router IDs a group has left;
* :mod:`~kavip.admission.disruption`: what an edit of a running group moves;
* :mod:`~kavip.admission.mutation`: the defaults that kavip writes;
* :mod:`~kavip.admission.verdict`: a verdict, and the AdmissionReview that tells it;
* :mod:`~kavip.admission.registration`: the two webhook configurations as data.

Admission proposes, the leader decides: nothing is reserved here, and the controller repeats every check.
"""
