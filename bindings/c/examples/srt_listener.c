// Accepts one SRT caller and writes what it sends to standard output:
//
//   srt_listener [PASSPHRASE] > file.ts

#include "shell.h"

int main(int count, char **arguments) {
  const char *passphrase = count > 1 ? arguments[1] : "";
  struct sockaddr_in local;
  int udp = open_socket(SOCK_DGRAM, "srt", &local);
  MillstreamSrt *srt = millstream_srt_new(now_us(), (const uint8_t *)passphrase, strlen(passphrase), 0);
  if (!srt) {
    fputs("a passphrase has 10 to 79 characters\n", stderr);
    return 1;
  }
  uint8_t buffer[2048];
  uint64_t caller = 0;
  bool is_connected = false, is_over = false;
  while (!is_over) {
    struct pollfd ready = {udp, POLLIN, 0};
    poll(&ready, 1, wait_ms(millstream_srt_poll_timeout(srt)));
    if (ready.revents & POLLIN) {
      struct sockaddr_in from;
      socklen_t length = sizeof from;
      ssize_t bytes = recvfrom(udp, buffer, sizeof buffer, 0, (struct sockaddr *)&from, &length);
      if (bytes > 0) {
        MillstreamAddress address = address_of(&from);
        millstream_srt_handle_datagram(srt, now_us(), &address, buffer, (size_t)bytes);
      }
    }
    millstream_srt_handle_timeout(srt, now_us());

    MillstreamSrtEvent event;
    while (millstream_srt_poll_event(srt, &event) == MILLSTREAM_RESULT_OK) {
      switch (event.kind) {
      case MILLSTREAM_SRT_EVENT_KIND_REQUEST:
        fprintf(stderr, "request %.*s\n", (int)event.length, (const char *)event.data);
        if (caller == 0) {
          caller = event.connection;
          millstream_srt_accept(srt, now_us(), caller);
        } else {
          millstream_srt_reject(srt, now_us(), event.connection, 1402);
        }
        break;
      case MILLSTREAM_SRT_EVENT_KIND_CONNECTED:
        is_connected = true;
        fputs("connected\n", stderr);
        break;
      case MILLSTREAM_SRT_EVENT_KIND_PAYLOAD:
        fwrite(event.data, 1, event.length, stdout);
        break;
      case MILLSTREAM_SRT_EVENT_KIND_SKIPPED:
        fprintf(stderr, "skipped %u\n", event.number);
        break;
      case MILLSTREAM_SRT_EVENT_KIND_OVERFLOW:
        // CLOSED follows. A loop that takes all events each time never sees it.
        fputs("events were not taken\n", stderr);
        break;
      case MILLSTREAM_SRT_EVENT_KIND_CLOSED:
        // A caller with another passphrase is closed without having been connected.
        if (event.connection == caller) {
          is_over = is_connected;
          caller = 0;
        }
        break;
      }
    }
    MillstreamDatagram datagram;
    while (millstream_srt_poll_transmit(srt, now_us(), &datagram) == MILLSTREAM_RESULT_OK) {
      send_datagram(udp, &datagram);
    }
  }
  millstream_srt_free(srt);
  return 0;
}
