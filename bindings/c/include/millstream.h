// SRT and WHIP as machines without sockets, clocks and threads: the program has them.
//
// Ownership and use:
// - `millstream_..._new` returns a handle, or NULL if an argument is invalid. `millstream_..._free` frees it, once; NULL is allowed.
// - A handle may move between threads, but only one thread may use it at a time.
// - Arguments are read during the call; the library keeps no pointer to them. A pointer may be NULL if its length is 0.
// - Data in an event or a datagram belongs to the handle and is valid until the next call with that handle.
// - Times are microseconds of a monotonic clock with any origin, not before the one given to `new`.
// - After each input (a datagram, a timeout, a verb): poll events until there are none, poll datagrams until there are none, then
//   read the next deadline.
// - A panic inside is caught: the call returns MILLSTREAM_RESULT_PANIC, and so does every later one with the handle.


#ifndef MILLSTREAM_H
#define MILLSTREAM_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

// The result of a call.
typedef enum MillstreamResult {
  // Done.
  MILLSTREAM_RESULT_OK = 0,
  // There is nothing more at present.
  MILLSTREAM_RESULT_NOTHING = 1,
  // A pointer is NULL that must not be.
  MILLSTREAM_RESULT_NULL = -1,
  // An argument is invalid.
  MILLSTREAM_RESULT_ARGUMENT = -2,
  // There is no such connection or session, or it is not in the state for this call.
  MILLSTREAM_RESULT_STATE = -3,
  // A queue is full; the data was not taken.
  MILLSTREAM_RESULT_FULL = -4,
  // The library failed; the handle can only be freed.
  MILLSTREAM_RESULT_PANIC = -5,
} MillstreamResult;

// The kind of an event of SRT.
typedef enum MillstreamSrtEventKind {
  // A caller asks for a connection; the data is its stream id. Answer with `accept` or `reject` within three seconds: later the
  // caller is forgotten, and the event `CLOSED` says so.
  MILLSTREAM_SRT_EVENT_KIND_REQUEST = 0,
  // The connection is established.
  MILLSTREAM_SRT_EVENT_KIND_CONNECTED = 1,
  // The data is a payload.
  MILLSTREAM_SRT_EVENT_KIND_PAYLOAD = 2,
  // Packets came too late or not at all; `number` is how many.
  MILLSTREAM_SRT_EVENT_KIND_SKIPPED = 3,
  // The connection has ended, or its caller was rejected or forgotten; its id has no more events.
  MILLSTREAM_SRT_EVENT_KIND_CLOSED = 4,
  // The program has not taken the events of the connection, which hold 8 MiB, or those of the port, which hold 256 MiB. The
  // connection is closed; later payloads are lost.
  MILLSTREAM_SRT_EVENT_KIND_OVERFLOW = 5,
} MillstreamSrtEventKind;

// The kind of an event of WHIP.
typedef enum MillstreamWhipEventKind {
  // The publisher is connected.
  MILLSTREAM_WHIP_EVENT_KIND_CONNECTED = 0,
  // The data is a frame.
  MILLSTREAM_WHIP_EVENT_KIND_FRAME = 1,
  // The session has ended; its id has no more events.
  MILLSTREAM_WHIP_EVENT_KIND_CLOSED = 2,
  // Frames of `codec` were lost: those that follow cannot be decoded until the next key frame, which is requested from the
  // publisher. Until it comes, a program that records or decodes should skip the frames of this codec; further losses are events, too.
  MILLSTREAM_WHIP_EVENT_KIND_LOST = 3,
  // The program has not taken the events of the session, which hold 8 MiB, or those of the port, which hold 256 MiB. The session is
  // closed; later frames are lost.
  MILLSTREAM_WHIP_EVENT_KIND_OVERFLOW = 4,
} MillstreamWhipEventKind;

// The codec of a frame.
typedef enum MillstreamCodec {
  // Another codec, or no frame.
  MILLSTREAM_CODEC_OTHER = 0,
  // H.264, with start codes.
  MILLSTREAM_CODEC_H264 = 1,
  // H.265, with start codes.
  MILLSTREAM_CODEC_H265 = 2,
  // VP8.
  MILLSTREAM_CODEC_VP8 = 3,
  // VP9.
  MILLSTREAM_CODEC_VP9 = 4,
  // AV1, a temporal unit without its delimiter.
  MILLSTREAM_CODEC_AV1 = 5,
  // Opus.
  MILLSTREAM_CODEC_OPUS = 6,
} MillstreamCodec;

// The connections of a UDP port.
typedef struct MillstreamSrt MillstreamSrt;

// The publishers of a UDP port.
typedef struct MillstreamWhip MillstreamWhip;

// An address of UDP.
typedef struct MillstreamAddress {
  // The bytes in network order; an address of IPv4 has the first four.
  uint8_t ip[16];
  // 4 or 16.
  uint8_t ip_length;
  // Port in the order of the host.
  uint16_t port;
} MillstreamAddress;

// An event of SRT.
typedef struct MillstreamSrtEvent {
  // The kind.
  enum MillstreamSrtEventKind kind;
  // Id of the connection.
  uint64_t connection;
  // A number; see the kind.
  uint32_t number;
  // Data, which belongs to the handle; see the kind.
  const uint8_t *data;
  // Number of bytes.
  size_t length;
} MillstreamSrtEvent;

// A datagram to send.
typedef struct MillstreamDatagram {
  // Destination.
  struct MillstreamAddress to;
  // The bytes, which belong to the handle.
  const uint8_t *data;
  // Number of bytes.
  size_t length;
} MillstreamDatagram;

// An event of WHIP.
typedef struct MillstreamWhipEvent {
  // The kind.
  enum MillstreamWhipEventKind kind;
  // Id of the session.
  uint64_t session;
  // Codec of a frame, or of the frames that were lost.
  enum MillstreamCodec codec;
  // Timestamp of RTP of a frame.
  uint32_t timestamp;
  // True if a decoder can begin with the frame.
  bool key_frame;
  // The frame, which belongs to the handle.
  const uint8_t *data;
  // Number of bytes.
  size_t length;
} MillstreamWhipEvent;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Makes a port. `passphrase` (10 to 79 characters) encrypts what it sends and is demanded of callers; of length 0 it means none.
// `latency_ms` is how long lost packets may be repaired; 0 means 120.
//
// # Safety
// `passphrase_length` bytes can be read at `passphrase`, or it is null.
struct MillstreamSrt *millstream_srt_new(uint64_t now_us,
                                         const uint8_t *passphrase,
                                         size_t passphrase_length,
                                         uint32_t latency_ms);

// Frees a port and its connections, without a word to their peers.
//
// # Safety
// `srt` is NULL, or a handle that was not freed.
void millstream_srt_free(struct MillstreamSrt *srt);

// Begins a connection to a listener, and writes its id to `connection`. A stream id that is longer than 512 bytes or not in UTF-8 is
// `ARGUMENT`. `FULL` means that the events of the port were not taken.
//
// # Safety
// `srt` is NULL or valid; the other pointers are NULL or point to what their types say.
enum MillstreamResult millstream_srt_connect(struct MillstreamSrt *srt,
                                             uint64_t now_us,
                                             const struct MillstreamAddress *to,
                                             const uint8_t *stream_id,
                                             size_t stream_id_length,
                                             uint64_t *connection);

// Handles a datagram from `from`.
//
// # Safety
// `srt` is NULL or valid; `from` is NULL or valid; `length` bytes can be read at `data`, or it is NULL.
enum MillstreamResult millstream_srt_handle_datagram(struct MillstreamSrt *srt,
                                                     uint64_t now_us,
                                                     const struct MillstreamAddress *from,
                                                     const uint8_t *data,
                                                     size_t length);

// Handles the deadlines that have passed.
//
// # Safety
// `srt` is NULL or valid.
enum MillstreamResult millstream_srt_handle_timeout(struct MillstreamSrt *srt, uint64_t now_us);

// Accepts the caller of a request.
//
// # Safety
// `srt` is NULL or valid.
enum MillstreamResult millstream_srt_accept(struct MillstreamSrt *srt,
                                            uint64_t now_us,
                                            uint64_t connection);

// Rejects the caller of a request with a code of SRT, as 1403 (forbidden) or 1404 (not found). Its last event is `CLOSED`.
//
// # Safety
// `srt` is NULL or valid.
enum MillstreamResult millstream_srt_reject(struct MillstreamSrt *srt,
                                            uint64_t now_us,
                                            uint64_t connection,
                                            uint32_t code);

// Sends a payload of at most 1316 bytes.
//
// # Safety
// `srt` is NULL or valid; `length` bytes can be read at `data`, or it is NULL.
enum MillstreamResult millstream_srt_send(struct MillstreamSrt *srt,
                                          uint64_t now_us,
                                          uint64_t connection,
                                          const uint8_t *data,
                                          size_t length);

// Closes a connection. Its last event is `CLOSED`.
//
// # Safety
// `srt` is NULL or valid.
enum MillstreamResult millstream_srt_close(struct MillstreamSrt *srt,
                                           uint64_t now_us,
                                           uint64_t connection);

// Writes the next event to `event`, or returns `NOTHING`.
//
// # Safety
// `srt` is NULL or valid; `event` is NULL or can be written.
enum MillstreamResult millstream_srt_poll_event(struct MillstreamSrt *srt,
                                                struct MillstreamSrtEvent *event);

// Writes the next datagram to `datagram`, or returns `NOTHING`.
//
// # Safety
// `srt` is NULL or valid; `datagram` is NULL or can be written.
enum MillstreamResult millstream_srt_poll_transmit(struct MillstreamSrt *srt,
                                                   uint64_t now_us,
                                                   struct MillstreamDatagram *datagram);

// Returns the next deadline, or `UINT64_MAX` if there is none.
//
// # Safety
// `srt` is NULL or valid.
uint64_t millstream_srt_poll_timeout(struct MillstreamSrt *srt);

// Makes a port whose socket has the address `local`, which answers name. `unix_us` is the time of day in microseconds
// since 1970.
//
// # Safety
// `local` is NULL or valid.
struct MillstreamWhip *millstream_whip_new(uint64_t now_us,
                                           uint64_t unix_us,
                                           const struct MillstreamAddress *local);

// Frees a port and its sessions, without a word to their peers.
//
// # Safety
// `whip` is NULL, or a handle that was not freed.
void millstream_whip_free(struct MillstreamWhip *whip);

// Handles an offer, the body of a request of WHIP: writes the id of a new session to `session`, and the answer, which belongs to the
// handle, to `answer` and `answer_length`. An offer that is refused is `ARGUMENT`; `FULL` means
// that the events of the port were not taken.
//
// # Safety
// `whip` is NULL or valid; `length` bytes can be read at `offer`, or it is NULL; the other pointers are NULL or can be written.
enum MillstreamResult millstream_whip_offer(struct MillstreamWhip *whip,
                                            uint64_t now_us,
                                            const uint8_t *offer,
                                            size_t length,
                                            uint64_t *session,
                                            const uint8_t **answer,
                                            size_t *answer_length);

// Handles a datagram from `from`.
//
// # Safety
// `whip` is NULL or valid; `from` is NULL or valid; `length` bytes can be read at `data`, or it is NULL.
enum MillstreamResult millstream_whip_handle_datagram(struct MillstreamWhip *whip,
                                                      uint64_t now_us,
                                                      const struct MillstreamAddress *from,
                                                      const uint8_t *data,
                                                      size_t length);

// Handles the deadlines that have passed.
//
// # Safety
// `whip` is NULL or valid.
enum MillstreamResult millstream_whip_handle_timeout(struct MillstreamWhip *whip, uint64_t now_us);

// Requests a key frame of a session's video, as for the beginning of a file. Requests are sent at most twice a second. A session
// without video is `STATE`.
//
// # Safety
// `whip` is NULL or valid.
enum MillstreamResult millstream_whip_request_key_frame(struct MillstreamWhip *whip,
                                                        uint64_t now_us,
                                                        uint64_t session);

// Closes a session. Its last event is `CLOSED`.
//
// # Safety
// `whip` is NULL or valid.
enum MillstreamResult millstream_whip_close(struct MillstreamWhip *whip,
                                            uint64_t now_us,
                                            uint64_t session);

// Writes the next event to `event`, or returns `NOTHING`.
//
// # Safety
// `whip` is NULL or valid; `event` is NULL or can be written.
enum MillstreamResult millstream_whip_poll_event(struct MillstreamWhip *whip,
                                                 struct MillstreamWhipEvent *event);

// Writes the next datagram to `datagram`, or returns `NOTHING`.
//
// # Safety
// `whip` is NULL or valid; `datagram` is NULL or can be written.
enum MillstreamResult millstream_whip_poll_transmit(struct MillstreamWhip *whip,
                                                    uint64_t now_us,
                                                    struct MillstreamDatagram *datagram);

// Returns the next deadline, or `UINT64_MAX` if there is none.
//
// # Safety
// `whip` is NULL or valid.
uint64_t millstream_whip_poll_timeout(struct MillstreamWhip *whip);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* MILLSTREAM_H */
