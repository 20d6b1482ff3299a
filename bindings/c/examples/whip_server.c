// Answers one WHIP publisher and writes its H.264 to standard output, with start codes:
//
//   whip_server > file.264
//   ffmpeg -re -i file.mp4 -c:v copy -c:a libopus -f whip http://127.0.0.1:PORT/whip

#include "shell.h"

// Reads a request of at most 64 KiB from a client that sends it at once, and returns its body.
static char *read_request(int client, char *buffer, size_t room, bool *is_delete) {
  size_t length = 0;
  for (;;) {
    ssize_t bytes = recv(client, buffer + length, room - 1 - length, 0);
    if (bytes <= 0) return NULL;
    length += (size_t)bytes;
    buffer[length] = 0;
    *is_delete = strncmp(buffer, "DELETE ", 7) == 0;
    char *body = strstr(buffer, "\r\n\r\n");
    char *field = strcasestr(buffer, "\r\ncontent-length:");
    if (!body) continue;
    size_t wanted = field && field < body ? strtoul(field + 17, NULL, 10) : 0;
    if (length >= (size_t)(body + 4 - buffer) + wanted) return body + 4;
  }
}

static void serve(MillstreamWhip *whip, int client) {
  static char buffer[64 * 1024];
  static const char head[] = "HTTP/1.1 %s\r\nContent-Type: application/sdp\r\nLocation: /session/%llu\r\n"
                             "Content-Length: %zu\r\nConnection: close\r\n\r\n";
  struct timeval limit = {2, 0};
  setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  bool is_delete = false;
  char *body = read_request(client, buffer, sizeof buffer, &is_delete);
  if (body && is_delete) {
    const char *number = buffer + strcspn(buffer, "0123456789");
    MillstreamResult result = millstream_whip_close(whip, now_us(), strtoull(number, NULL, 10));
    dprintf(client, head, result == MILLSTREAM_RESULT_OK ? "200 OK" : "404 Not Found", 0ULL, (size_t)0);
  } else if (body) {
    uint64_t session = 0;
    const uint8_t *answer = NULL;
    size_t length = 0;
    MillstreamResult result = millstream_whip_offer(whip, now_us(), (const uint8_t *)body, strlen(body), &session,
                                                    &answer, &length);
    const char *status = result == MILLSTREAM_RESULT_OK ? "201 Created" : "422 Unprocessable Content";
    dprintf(client, head, status, (unsigned long long)session, length);
    (void)!write(client, answer ? (const char *)answer : "", length);
  }
  close(client);
}

int main(void) {
  struct sockaddr_in local, http;
  int udp = open_socket(SOCK_DGRAM, "media", &local);
  int listener = open_socket(SOCK_STREAM, "http", &http);
  if (listen(listener, 4) != 0) return 1;
  MillstreamAddress address = address_of(&local);
  MillstreamWhip *whip = millstream_whip_new(now_us(), clock_us(CLOCK_REALTIME), &address);
  if (!whip) return 1;
  uint8_t buffer[2048];
  unsigned long frames = 0;
  // True until a key frame comes: after a loss, pictures cannot be decoded before.
  bool is_broken = true, is_over = false;
  while (!is_over) {
    struct pollfd ready[2] = {{udp, POLLIN, 0}, {listener, POLLIN, 0}};
    poll(ready, 2, wait_ms(millstream_whip_poll_timeout(whip)));
    if (ready[0].revents & POLLIN) {
      struct sockaddr_in from;
      socklen_t length = sizeof from;
      ssize_t bytes = recvfrom(udp, buffer, sizeof buffer, 0, (struct sockaddr *)&from, &length);
      if (bytes > 0) {
        MillstreamAddress sender = address_of(&from);
        millstream_whip_handle_datagram(whip, now_us(), &sender, buffer, (size_t)bytes);
      }
    }
    if (ready[1].revents & POLLIN) serve(whip, accept(listener, NULL, NULL));
    millstream_whip_handle_timeout(whip, now_us());

    MillstreamWhipEvent event;
    while (millstream_whip_poll_event(whip, &event) == MILLSTREAM_RESULT_OK) {
      if (event.kind == MILLSTREAM_WHIP_EVENT_KIND_CONNECTED) fputs("connected\n", stderr);
      if (event.kind == MILLSTREAM_WHIP_EVENT_KIND_LOST) is_broken = true;
      if (event.kind == MILLSTREAM_WHIP_EVENT_KIND_FRAME && event.codec == MILLSTREAM_CODEC_H264) {
        is_broken = is_broken && !event.key_frame;
        if (!is_broken) {
          fwrite(event.data, 1, event.length, stdout);
          frames++;
        }
      }
      if (event.kind == MILLSTREAM_WHIP_EVENT_KIND_CLOSED) is_over = true;
    }
    MillstreamDatagram datagram;
    while (millstream_whip_poll_transmit(whip, now_us(), &datagram) == MILLSTREAM_RESULT_OK) {
      send_datagram(udp, &datagram);
    }
  }
  fprintf(stderr, "closed after %lu frames\n", frames);
  millstream_whip_free(whip);
  return 0;
}
