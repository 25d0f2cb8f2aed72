"""Everything that takes long and can be done ahead: Debian packages, programs and images, side by side.

The compiler keeps all cores busy for minutes. Packages and images mostly wait for the network and for disks meanwhile.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from hack.testbed import debian, images, need, programs
from hack.testbed.programs import Programs


def everything(names: Sequence[str], *more: Callable[[], object]) -> Programs:
    """
    Have these programs, the images of the testbed, and the images that *more* build.

    Raises TestbedError at once where no image can be built and no machine can run.
    """
    need.namespaces("a cluster", () if debian.installable() else tuple(debian.PACKAGES))
    with ThreadPoolExecutor() as pool:
        compiled = pool.submit(programs.ensure, names)
        debian.install()
        for build in (images.pause, images.web, *more):
            build()
        return compiled.result()
