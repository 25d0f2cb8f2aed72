# A web server that tells which pod answered: every path holds the pod's name. PORT chooses its port (80).
FROM scratch
COPY busybox /bin/busybox
COPY web.sh /web.sh
ENTRYPOINT ["/bin/busybox", "sh", "/web.sh"]
