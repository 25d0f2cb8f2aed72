# The only pages are the pod's name; httpd serves IPv4 and IPv6.
/bin/busybox mkdir -p /tmp/www
/bin/busybox hostname >/tmp/www/index.html
exec /bin/busybox httpd -f -p "${PORT:-80}" -h /tmp/www
