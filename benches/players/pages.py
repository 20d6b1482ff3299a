"""A web server for the page of the players and its scripts."""

import functools
import http.server
import threading


class Pages(http.server.SimpleHTTPRequestHandler):
    """Serves the page and its scripts."""

    def __init__(self, page, *args, **names):
        self.page = page
        super().__init__(*args, **names)

    def do_GET(self):
        if self.path != "/":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(self.page)

    def log_message(self, *_):
        pass


@functools.cache
def serve(title, video, scripts, directory):
    """The address of a page with this title, a video element with these attributes, and these scripts from the folder."""
    body = "".join(f"<script src=/{script}></script>" for script in scripts)
    page = f"<!doctype html><title>{title}</title><video {video}></video>{body}".encode()
    handler = functools.partial(Pages, page, directory=directory)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/"
