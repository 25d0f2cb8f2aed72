"""
The bundle and the catalog for the Operator Lifecycle Manager: ``make bundle``.

They are made from what there is: the Deployments and the rights from the chart, the webhooks from
:mod:`kavip.admission.registration`, the definitions and samples from ``config``. Only the descriptions are written by
hand, in ``config/olm``. The same input gives the same bytes.

:mod:`~hack.bundle.olm` plays OLM's part with them, for tests and ``make upgrade``.
"""
