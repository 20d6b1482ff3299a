"""Reads byte streams by h11: one line of base64 in, one line of JSON out."""
import base64, json, sys
import h11

for line in sys.stdin:
    data = base64.b64decode(line)
    seen, error = [], False
    conn = h11.Connection(h11.SERVER, max_incomplete_event_size=64 * 1024)
    method, body = None, b""
    try:
        conn.receive_data(data)
        eof = False
        while True:
            event = conn.next_event()
            if event is h11.NEED_DATA:
                if eof:
                    break
                eof = True
                conn.receive_data(b"")
            elif isinstance(event, h11.Request):
                method, body = event.method.decode("latin-1"), b""
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                seen.append([method, base64.b64encode(body).decode()])
                conn.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                conn.send(h11.EndOfMessage())
            elif isinstance(event, h11.ConnectionClosed):
                break
            if event is h11.PAUSED:
                if conn.our_state is h11.DONE and conn.their_state is h11.DONE:
                    conn.start_next_cycle()
                else:
                    break
    except h11.RemoteProtocolError:
        error = True
    except h11.LocalProtocolError:
        pass
    print(json.dumps({"seen": seen, "error": error}), flush=True)
