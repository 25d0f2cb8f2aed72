# One image for all roles: `kavip run` in the Deployment, `kavip agent` and keepalived in the DaemonSets.
#
#   docker build --tag registry.example/kavip:0.2.0 .
#
# BASE needs Python 3.11 or later with pip, on Debian; keepalived and nftables are installed where it has none. Name it
# by digest for builds that can be repeated: --build-arg BASE=docker.io/library/python:3.13-slim-trixie@sha256:...
# LOCKED=1 refuses Debian packages that differ from requirements/debian-ARCHITECTURE.txt; else the build prints them.
# PIP_ARGS says where pip finds the wheels: the testbed mounts them and passes "--no-index --find-links /wheels".
ARG BASE=docker.io/library/python:3.13-slim-trixie
FROM ${BASE}
ARG BASE
ARG PIP_ARGS=""

# 2.3.3 on trixie, nft for the routing of replies, and the CAs that health checks believe by default. No recommended
# packages: snmp and the like have no place here.
RUN { command -v keepalived && command -v nft; } >/dev/null || { \
      apt-get update -qq && \
      DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends \
        ca-certificates keepalived nftables && \
      rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/ldconfig/* /var/log/*; \
    }

# An environment of its own, without pip: Debian's Python stays as it was, and nothing can be installed later. Bytecode
# is compiled now, because the root is read-only later, and without the times of files, so that two builds are equal.
COPY requirements/run.txt /usr/share/kavip/requirements.txt
RUN python3 -m venv --without-pip /opt/kavip && \
    python3 -m pip --python /opt/kavip/bin/python install --no-cache-dir --disable-pip-version-check --no-compile \
      --require-hashes --requirement /usr/share/kavip/requirements.txt ${PIP_ARGS} && \
    python3 -m compileall -q --invalidation-mode unchecked-hash /opt/kavip

# The list of Debian packages stays in the image, so that a running pod can be compared with the lock and with updates.
ARG LOCKED=""
COPY requirements/debian-*.txt /usr/share/kavip/locks/
RUN cd /usr/share/kavip && \
    lock=locks/debian-$(dpkg --print-architecture).txt && \
    dpkg-query --show --showformat='${db:Status-Abbrev}${Package} ${Version} ${Architecture}\n' | \
      sed -n 's/^ii *//p' | LC_ALL=C sort > packages.txt && \
    { grep -v '^#' "$lock" | diff -U0 --label "requirements/${lock#locks/}" --label image - packages.txt >&2 || \
      [ -z "${LOCKED}" ]; }

# kavip is plain Python: copied, not built, so that no build tool is needed here.
COPY LICENSE /usr/share/kavip/
COPY kavip /usr/lib/kavip/kavip
RUN python3 -m compileall -q --invalidation-mode unchecked-hash /usr/lib/kavip && \
    printf '#!/opt/kavip/bin/python\nfrom kavip.cli.main import main\n\nmain()\n' > /opt/kavip/bin/kavip && \
    chmod 755 /opt/kavip/bin/kavip && \
    ln -s kavip /opt/kavip/bin/kubectl-kavip && \
    echo /usr/lib/kavip > "$(/opt/kavip/bin/python -c 'import site; print(site.getsitepackages()[0])')/kavip.pth"

LABEL org.opencontainers.image.base.name="${BASE}"
ENV PATH=/opt/kavip/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
ENTRYPOINT ["kavip"]
CMD ["run"]
