// The shell around a machine, as both examples need it: the clock, the socket, and addresses.

#ifndef SHELL_H
#define SHELL_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "millstream.h"

static uint64_t clock_us(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static uint64_t now_us(void) { return clock_us(CLOCK_MONOTONIC); }

static MillstreamAddress address_of(const struct sockaddr_in *from) {
  MillstreamAddress address = {{0}, 4, ntohs(from->sin_port)};
  memcpy(address.ip, &from->sin_addr, 4);
  return address;
}

// Opens a socket of `type` on the loopback with a port of the kernel's choice, and prints the address.
static int open_socket(int type, const char *name, struct sockaddr_in *local) {
  socklen_t length = sizeof *local;
  memset(local, 0, sizeof *local);
  local->sin_family = AF_INET;
  local->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int opened = socket(AF_INET, type, 0);
  if (opened < 0 || bind(opened, (struct sockaddr *)local, length) != 0 ||
      getsockname(opened, (struct sockaddr *)local, &length) != 0) {
    perror(name);
    exit(1);
  }
  fprintf(stderr, "%s 127.0.0.1:%d\n", name, ntohs(local->sin_port));
  return opened;
}

// Sends a datagram. One that the socket does not take is lost, as it may be on the network.
static void send_datagram(int udp, const MillstreamDatagram *datagram) {
  struct sockaddr_in to = {0};
  to.sin_family = AF_INET;
  to.sin_port = htons(datagram->to.port);
  memcpy(&to.sin_addr, datagram->to.ip, 4);
  (void)!sendto(udp, datagram->data, datagram->length, 0, (struct sockaddr *)&to, sizeof to);
}

// Milliseconds until a deadline, at most a second.
static int wait_ms(uint64_t deadline) {
  uint64_t now = now_us();
  if (deadline <= now) return 0;
  return deadline - now >= 1000000 ? 1000 : (int)((deadline - now + 999) / 1000);
}

#endif
