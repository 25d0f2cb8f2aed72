"""
A machine whose init is systemd, with units of its own, for what only a shutdown shows.

`machine.init_system = Systemd()` before the start. The machine then has its own root: an overlay over the real file
system, so that nothing which systemd starts, creates, cleans up or unmounts reaches the real one. Shared are the
machine's home and the directories that hold the checkout and the testbed's cache. systemd starts D-Bus, logind, the
network and the units that were written, and nothing of what the real machine starts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hack.testbed import cache, need, runs
from hack.testbed.machine import NAMESPACES, NETWORK, Machine

UNITS: Final = "etc/systemd/system"
_ROOT: Final = Path(__file__).parents[2]
_CGROUPS: Final = Path("/sys/fs/cgroup")

# A stopped network is a link that is down, as ifupdown and others leave it; the cable is the testbed's.
_NETWORK: Final = """[Unit]
Description=network of the testbed
DefaultDependencies=no
Before=network.target network-online.target shutdown.target
Conflicts=shutdown.target
Wants=network.target network-online.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
ExecStop=/usr/bin/env ip link set eth0 down
"""

# $1: the home, $2: the name, $3: what mounts the cgroups, further ones: shared directories, `--`, then files as pairs
# of path and text. Generators, and what other units want, are the real machine's. tmpfiles.d would empty /tmp.
_BOOT: Final = (
    """
set -e
home=$1 name=$2 cgroups=$3
shift 3
mount -t tmpfs tmpfs /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work overlay /mnt/root
cd /mnt/root
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
mount -t proc proc proc
mount -t sysfs sysfs sys
eval "$cgroups"
mount -t tmpfs tmpfs dev
mkdir dev/pts dev/shm
for each in null zero full random urandom tty kmsg; do touch dev/$each; mount --bind /dev/$each dev/$each; done
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mkdir -p "./$home"
mount --bind "$home" "./$home"
while [ "$1" != -- ]; do mkdir -p "./$1"; mount --bind "$1" "./$1"; shift; done
shift
rm -rf usr/lib/systemd/system-generators usr/lib/tmpfiles.d etc/tmpfiles.d etc/systemd/system etc/fstab
echo 0123456789abcdef0123456789abcdef >etc/machine-id  # without one systemd enables all units
rm -rf usr/lib/systemd/system/sysinit.target.wants usr/lib/systemd/system/local-fs.target.wants
rm -rf usr/lib/systemd/system/multi-user.target.wants usr/lib/systemd/system/timers.target.wants
mkdir -p etc/systemd/system/multi-user.target.wants
while [ $# != 0 ]; do mkdir -p "$(dirname "./$1")"; printf %s "$2" >"./$1"; shift 2; done
ln -s /usr/lib/systemd/system/dbus.service /usr/lib/systemd/system/systemd-logind.service \
  ../testbed-network.service etc/systemd/system/multi-user.target.wants
ln -s /dev/null 'etc/systemd/system/modprobe@.service'
ln -s /usr/lib/systemd/system/multi-user.target etc/systemd/system/default.target
"""
    + NETWORK
    + """
pivot_root . mnt
umount --lazy /mnt
exec env -i container=testbed PATH="$PATH" chroot . /usr/lib/systemd/systemd --log-target=journal --system
"""
)


@dataclass(frozen=True, slots=True)
class Systemd:
    """systemd as the init of a machine; *files*: by path below its root, such as units."""

    files: Mapping[str, str] = field(default_factory=dict)
    name: str = "systemd"

    def command(self, name: str, home: Path) -> list[str]:
        """The command line that boots the machine *name*."""
        need.packages("a machine with systemd", need.SYSTEMD)
        own = _own_cgroups(home)
        (home / f"machine{runs.CGROUPS}").write_text("".join(f"{path}\n" for path in own))
        for path in own:
            path.mkdir(exist_ok=True)
        enter = 'for each in $1; do echo $$ >"$each/cgroup.procs"; done; shift; exec "$@"'
        isolate = ["unshare", "--fork", "--kill-child", *NAMESPACES, "--ipc", "--cgroup", "--propagation=private"]
        files = {f"{UNITS}/testbed-network.service": _NETWORK, **self.files}
        words = [word for pair in sorted(files.items()) for word in pair]
        shared = [str(cache.root()), str(_ROOT)]
        boot = [*isolate, "--mount-proc", "sh", "-c", _BOOT, "sh", str(home), name, _mount_cgroups(), *shared, "--"]
        return ["sh", "-c", enter, "sh", " ".join(map(str, own)), *boot, *words]

    def is_up(self, machine: Machine) -> bool:
        """Whether ``basic.target`` is reached: then systemd and D-Bus have their sockets (systemctl(1))."""
        found = machine.exec("systemctl", "is-system-running", check=False).stdout.strip()
        return found in {"starting", "running", "degraded"}


def _own_cgroups(home: Path) -> list[Path]:
    """The cgroup of a machine in each hierarchy, below that of this process."""
    name = f"testbed-{home.parent.name}-{home.name}"
    lines = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
    found = ((_hierarchy(controllers), path.lstrip("/")) for _, controllers, path in lines)
    return [root / path / name for root, path in found if root.is_dir()]


def _hierarchy(controllers: str) -> Path:
    """Where a hierarchy is mounted; version 2 is alone, or beside version 1."""
    if controllers:
        return _CGROUPS / controllers.removeprefix("name=")
    return _CGROUPS if (_CGROUPS / "cgroup.procs").exists() else _CGROUPS / "unified"


def _mount_cgroups() -> str:
    """The commands that mount the hierarchies in the current directory as this machine has them."""
    if (_CGROUPS / "cgroup.procs").exists():
        return "mount -t cgroup2 cgroup2 sys/fs/cgroup"
    lines = ["mount -t tmpfs tmpfs sys/fs/cgroup"]
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        controllers = line.split(":", 2)[1]
        folder = _hierarchy(controllers).name
        if _hierarchy(controllers).is_dir():
            kind = f"-t cgroup -o {controllers}" if controllers else "-t cgroup2"
            lines.append(f"mkdir sys/fs/cgroup/{folder}; mount {kind} cgroup sys/fs/cgroup/{folder}")
    return "\n".join(lines)
