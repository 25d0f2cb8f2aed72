"""What netlink is asked leaves nothing behind."""

import gc

import pytest
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from kavip.agent import netlink
from kavip.api.address import parse_address


@pytest.mark.slow
async def test_no_message_outlives_a_look() -> None:
    """The messages of a dump refer to each other; with hundreds of VIPs those of two looks are megabytes."""
    gc.collect()
    gc.disable()  # or it would be a matter of luck
    try:
        _, held, _ = await netlink.look(parse_address("127.0.0.1"))
        assert held
        assert not [each for each in gc.get_objects() if type(each) in (ifaddrmsg, rtmsg)]
    finally:
        gc.enable()
