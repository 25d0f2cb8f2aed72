"""
The packets by which an address is asked for, claimed and defended on a LAN. PURE.

* :mod:`~kavip.agent.conflicts.packets.sighting`: what a packet says about an address;
* :mod:`~kavip.agent.conflicts.packets.arp`: IPv4: ARP probes and announcements (RFC 5227);
* :mod:`~kavip.agent.conflicts.packets.ndisc`: IPv6: neighbour solicitations and advertisements (RFC 4861, RFC 4862);
* :mod:`~kavip.agent.conflicts.packets.filters`: classic BPF programs, by which the kernel drops all other packets.
"""
