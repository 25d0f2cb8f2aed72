# What the specs of Kubernetes run in their pods: agnhost, and the programs that they call there.
ARG BASE
FROM ${BASE}
RUN apt-get -q update && apt-get -q install --yes --no-install-recommends curl iproute2 netcat-openbsd wget
COPY agnhost /agnhost
ENTRYPOINT ["/agnhost"]
CMD ["pause"]
