"""The objects and the configuration of cluster DNS."""

from pathlib import Path

from hack.testbed import dns


def test_the_address_is_the_tenth_of_each_network() -> None:
    """Where kubeadm has it."""
    assert dns.addresses("10.96.0.0/16,2001:db8:96::/112") == ("10.96.0.10", "2001:db8:96::a")


def test_each_family_has_an_endpoint_slice() -> None:
    """The Service has no selector, so the slices name the machine that runs CoreDNS."""
    *_, service, first, second = dns.objects(("10.96.0.10", "2001:db8:96::a"), ("192.0.2.10", "2001:db8:2::a"))
    assert service["spec"]["ipFamilies"] == ["IPv4", "IPv6"]
    assert "selector" not in service["spec"]
    assert [each["addressType"] for each in (first, second)] == ["IPv4", "IPv6"]
    assert first["endpoints"][0]["addresses"] == ["192.0.2.10"]
    assert {each["metadata"]["labels"]["kubernetes.io/service-name"] for each in (first, second)} == {"kube-dns"}


def test_coredns_serves_the_domain_that_pods_search() -> None:
    """kubelet writes the same domain into their resolv.conf."""
    assert f"kubernetes {dns.DOMAIN} " in dns.corefile(Path("/x/kubeconfig"))
