"""Reading the node's network by netlink frees its memory."""

import gc

import pytest
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from kavip.agent import network
from kavip.api.address import parse_address


@pytest.mark.slow
async def test_no_message_outlives_a_read() -> None:
    """The messages are reference cycles; those of hundreds of VIPs take megabytes."""
    gc.collect()
    gc.disable()  # so that the result does not depend on luck
    try:
        _, held, _ = await network.read(parse_address("127.0.0.1"))
        assert held
        assert not [each for each in gc.get_objects() if type(each) in (ifaddrmsg, rtmsg)]
    finally:
        gc.enable()
