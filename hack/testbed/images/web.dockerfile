# A web server that tells which pod answered: what it says to any request is the pod's name. PORT chooses its port (80).
FROM scratch
COPY web /web
ENTRYPOINT ["/web"]
