/*
 * Answers every request with the name of its pod, over IPv4 and IPv6, on PORT (80); `web name` prints it.
 *
 * Its queue is long: a client that asks often is not turned away because a busy machine lets this wait for a while.
 */
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static void answer(int client, const char *name) {
  struct timeval patience = {.tv_sec = 10};
  char asked[4096], said[512];
  size_t length = 0;
  setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  do {
    ssize_t more = read(client, asked + length, sizeof asked - 1 - length);
    if (more <= 0) return;
    asked[length += more] = 0;
  } while (!strstr(asked, "\r\n\r\n") && length < sizeof asked - 1);
  length = snprintf(said, sizeof said, "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n\r\n%s\n",
                    strlen(name) + 1, name);
  if (write(client, said, length) == (ssize_t)length) shutdown(client, SHUT_WR);
}

int main(int count, char **words) {
  const char *port = getenv("PORT");
  char name[256] = "";
  struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
  int server = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1, no = 0;
  gethostname(name, sizeof name - 1);
  if (count > 1 && !strcmp(words[1], "name")) return puts(name) < 0;
  any.sin6_port = htons(port ? atoi(port) : 80);
  setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  setsockopt(server, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  if (bind(server, (struct sockaddr *)&any, sizeof any) || listen(server, 4096)) {
    perror("cannot listen");
    return 1;
  }
  signal(SIGCHLD, SIG_IGN);
  for (;;) {
    int client = accept(server, NULL, NULL);
    if (client >= 0 && fork() == 0) {
      answer(client, name);
      _exit(0);
    }
    if (client >= 0) close(client);
  }
}
