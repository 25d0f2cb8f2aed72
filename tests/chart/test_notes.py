"""What `helm install` and `helm upgrade` tell whoever runs them, who may not know it otherwise."""

import pytest

from hack.testbed.controlplane import ControlPlane
from tests import files
from tests.chart.release import RELEASE, Helm

pytestmark = [pytest.mark.chart, pytest.mark.apiserver]

ASKING = "--set=webhook.failurePolicy.validating=Ignore"


def test_groups_that_are_left_out_are_named(helm: Helm, server: ControlPlane) -> None:
    """A list of namespaces without that of a living group says which group, what comes of it, and both ways out."""

    def upgrade(*settings: str) -> str:
        done = helm("upgrade", "--install", *RELEASE, ASKING, *settings, kubeconfig=server.kubeconfig)
        return done.stdout

    assert "LEFT OUT" not in upgrade("--set=groupNamespaces={lb}")
    server.kubectl("create", f"--kustomize={files.CONFIG / 'samples'}")
    assert "LEFT OUT" not in upgrade()
    assert "LEFT OUT" not in upgrade("--set=groupNamespaces={default,lb}")
    told = upgrade("--set=groupNamespaces={lb}")
    assert "GROUPS ARE LEFT OUT: groupNamespaces is lb, and these KeepalivedGroups lie elsewhere:\n  default/" in told
    assert "THEIR PODS GO ON HOLDING THE VIPS" in told
    assert "--set groupNamespaces='{lb,default}'" in told
    assert "  kubectl --namespace default delete keepalivedgroup " in told
