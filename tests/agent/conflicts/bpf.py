"""An interpreter of classic BPF, as far as kavip's programs use it: what the kernel is expected to do."""

from kavip.agent.conflicts.packets.filters import Program

PACKET_TYPE = 0xFFFF_F004
OTHER_HOST, OUTGOING = 3, 4


def passed(program: Program, packet: bytes, *, packet_type: int = OTHER_HOST) -> bool:
    """Whether *program* passes *packet*; a load behind its end drops it."""
    accumulator, place = 0, 0
    for _ in program:
        code, true, false, k = program[place]
        place += 1
        match code:
            case 0x20 | 0x28 | 0x30:
                if k == PACKET_TYPE:
                    accumulator = packet_type
                    continue
                size = {0x20: 4, 0x28: 2, 0x30: 1}[code]
                if k + size > len(packet):
                    return False
                accumulator = int.from_bytes(packet[k : k + size], "big")
            case 0x05:
                place += k
            case 0x15 | 0x25 | 0x35:
                holds = {0x15: accumulator == k, 0x25: accumulator > k, 0x35: accumulator >= k}[code]
                place += true if holds else false
            case 0x06:
                return k > 0
            case _:
                raise AssertionError(f"no such instruction: {code:#x}")
    raise AssertionError("the program does not end")
