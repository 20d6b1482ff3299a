// Reads byte streams by Node's http: one line of base64 in, one line of JSON out.
"use strict";
const http = require("http");
const { Duplex } = require("stream");
const readline = require("readline");

function run(data) {
  return new Promise((resolve) => {
    const seen = [];
    let error = false;
    const server = http.createServer((request, response) => {
      const body = [];
      request.on("data", (chunk) => body.push(chunk));
      request.on("error", () => {});
      request.on("end", () => {
        if (request.complete) seen.push([request.method, Buffer.concat(body).toString("base64")]);
        response.end();
      });
    });
    // Requests before the error are still to be handed out: the watch below ends the connection.
    server.on("clientError", () => { error = true; });
    const socket = new Duplex({
      read() {},
      write(chunk, encoding, done) { done(); },
      final(done) { done(); setImmediate(() => socket.destroy()); },
    });
    for (const name of ["setTimeout", "setNoDelay", "setKeepAlive", "ref", "unref"]) socket[name] = () => socket;
    const finish = () => { server.closeAllConnections(); resolve({ seen, error }); };
    socket.on("close", () => setImmediate(finish));
    socket.on("error", () => {});
    server.emit("connection", socket);
    socket.push(data);
    socket.push(null);
    // Answers are written to memory: when nothing is left to do, nothing more comes.
    let rounds = 0;
    const watch = () => { if (socket.destroyed) return; if (++rounds > 30) socket.destroy(); else setImmediate(watch); };
    setImmediate(watch);
  });
}

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await run(Buffer.from(line, "base64"))));
  }
})();
