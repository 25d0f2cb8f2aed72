"""Settings: each field is a flag and a variable; a bad value is reported in one line, with exit status 2."""

import subprocess
import sys
from typing import Any

import pytest

from kavip.errors import SettingsError
from kavip.settings import Settings, unknown_variables


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ipam": "sometimes"}, "--ipam (KAVIP_IPAM): 'sometimes': want one of auto, always, never"),
        ({"webhook_port": 70000}, "--webhook-port (KAVIP_WEBHOOK_PORT): 70000: want a port, 0 to 65535"),
        ({"lease_seconds": 1}, "--lease-seconds (KAVIP_LEASE_SECONDS): 1: want at least 3"),
        (
            {"agent_allowed_cidrs": "10.0.0.0/8, 10.0.0.1/8"},
            "--agent-allowed-cidrs (KAVIP_AGENT_ALLOWED_CIDRS): 10.0.0.1/8 has host bits set",
        ),
        (
            {"webhook_url": "https://h:1", "certs_mode": "service-ca"},
            "--certs-mode (KAVIP_CERTS_MODE): 'service-ca': cannot be used with a webhook URL; want self or provided",
        ),
        (
            {"olm_owner": "kavip.v1.0.0"},
            "--certs-mode (KAVIP_CERTS_MODE): 'self': want provided with olm-owner: OLM issues the certificate",
        ),
        (
            {"template_privileges": "hostPath, hostPID"},
            (
                "--template-privileges (KAVIP_TEMPLATE_PRIVILEGES): 'hostPID': want some of hostPath, privileged, "
                "serviceAccountToken"
            ),
        ),
        ({"webhook_url": "http://h:1"}, "--webhook-url (KAVIP_WEBHOOK_URL): 'http://h:1': want https://HOST:PORT"),
    ],
)
def test_a_bad_value_names_flag_variable_value_and_remedy(given: dict[str, Any], words: str) -> None:
    """The message is one line."""
    with pytest.raises(SettingsError) as refused:
        Settings(**given)
    assert str(refused.value) == words


def test_an_unknown_variable_names_the_nearest_known_one() -> None:
    """An unknown KAVIP_ variable is reported with the nearest known name."""
    lines = unknown_variables({"KAVIP_LOG_LEVL": "debug"}, {"KAVIP_LOG_LEVEL"})
    assert lines == ["environment variable KAVIP_LOG_LEVL is unknown; did you mean KAVIP_LOG_LEVEL?"]


def test_variables_of_kubelet_are_ignored() -> None:
    """kubelet injects variables for a Service called kavip-webhook."""
    injected = {
        "KAVIP_WEBHOOK_SERVICE_HOST": "10.96.0.9",
        "KAVIP_WEBHOOK_SERVICE_PORT_HTTPS": "443",
        "KAVIP_PORT": "tcp://10.96.0.9:443",
        "KAVIP_PORT_443_TCP_ADDR": "10.96.0.9",
    }
    assert unknown_variables(injected, set()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "variables", "words"),
    [
        (["run", "--ipam", "x"], {}, "'x' is not one of 'auto', 'always', 'never'"),
        (["run", "--colour"], {}, "No such option '--colour'"),
        (["run"], {"KAVIP_IPAN": "auto"}, "KAVIP_IPAN is unknown; did you mean KAVIP_IPAM?"),
        (["run", "--kubeconfig", "/nowhere/config"], {}, "kubeconfig '/nowhere/config': want a file that exists"),
        (["run"], {}, "/.kube/config has none; set KUBECONFIG to the path of a kubeconfig, or give --kubeconfig"),
        (["controller"], {"KUBECONFIG": "/nowhere/a:/nowhere/b"}, "KUBECONFIG is '/nowhere/a:/nowhere/b'"),
        (["webhook"], {"HOME": "/nowhere"}, "/nowhere/.kube/config has none"),
        (["status"], {"HOME": "/nowhere"}, "/nowhere/.kube/config has none"),
        (["plan", "-f", "/nowhere/file.yaml"], {}, "/nowhere/file.yaml"),
        (["walk"], {}, "No such command 'walk'"),
    ],
)
def test_bad_flags_and_variables_end_in_one_line_and_status_2(
    arguments: list[str], variables: dict[str, str], words: str
) -> None:
    """The program prints one line on standard error and exits with status 2."""
    environment = {"PATH": "/usr/bin", "PYTHONPATH": ".", **variables}
    command = [sys.executable, "-m", "kavip", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
