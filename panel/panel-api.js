// The REST API as the panel calls it. A session that is over is asked for again, and the call repeated; a server that does not
// answer is waited for.

/** The folder of the panel, which a proxy may have put anywhere. */
export const HERE = new URL(".", import.meta.url).href;
const BASE = `${HERE}rest/v2`;
const RETRY_MS = 2000;

/** Functions that are called when the connection is lost and when it is back. */
const listeners = new Set();
let isOffline = false;
/** Asks for a login; set by the shell. */
let logIn = () => Promise.reject(new Error("no login"));
/** The login that all waiting calls share. */
let pending = null;

export function onConnection(listener) {
  listeners.add(listener);
  listener(isOffline);
  return () => listeners.delete(listener);
}

export function setLogin(ask) {
  logIn = ask;
}

function setOffline(offline) {
  if (offline === isOffline) return;
  isOffline = offline;
  for (const listener of listeners) listener(offline);
}

const wait = (ms) => new Promise((done) => setTimeout(done, ms));

/** An answer that is none of what was asked for. */
export class Refusal extends Error {
  constructor(status, text) {
    super(text || `HTTP ${status}`);
    this.status = status;
  }
}

async function send(method, path, body, signal) {
  const headers = { Accept: "application/json" };
  const init = { method, headers, credentials: "same-origin", signal };
  if (body instanceof FormData) {
    init.body = body;
  } else if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(body);
  } else if (method !== "GET") {
    // A write that comes by cookie says that it is no form of another page.
    headers["Content-Type"] = "application/json";
  }
  for (;;) {
    try {
      const response = await fetch(BASE + path, init);
      setOffline(false);
      return response;
    } catch (error) {
      if (signal?.aborted) throw error;
      setOffline(true);
      // A write may have taken effect, so it is not repeated.
      if (method !== "GET") throw new Refusal(0, "");
      await wait(RETRY_MS);
    }
  }
}

async function read(response) {
  const text = await response.text();
  try {
    return text === "" ? null : JSON.parse(text);
  } catch {
    return text;
  }
}

/** The response to a call of the management API that was done. */
async function respond(method, path, body, { open = false, signal } = {}) {
  for (;;) {
    const response = await send(method, path, body, signal);
    if (response.ok) return response;
    if (response.status === 403 && !open && !(await isLoggedIn())) {
      pending ??= logIn().finally(() => { pending = null; });
      await pending;
      continue;
    }
    const answer = await read(response);
    throw new Refusal(response.status, answer?.message ?? "");
  }
}

/** A call of the management API. */
export async function call(method, path, body, options) {
  return read(await respond(method, path, body, options));
}

/** A page of a list that the server ends at a number of bytes; `next` is the offset of the page behind it, if there is one. */
export async function pageOf(path, offset, signal) {
  const response = await respond("GET", `${path}?offset=${offset}`, undefined, { signal });
  const next = response.headers.get("Next-Offset");
  return { list: (await read(response)) ?? [], next: next === null ? null : Number(next) };
}

/** A call of an application's API, through the panel's own address: a path is a parameter there, and encoded once. */
export function callApp(app, method, path, body, options) {
  const [plain, query] = path.split("?");
  const more = query ? `&${query}` : "";
  const inner = encodeURIComponent(`${app}/rest/v2${decodeURIComponent(plain)}`);
  return call(method, `/request?_path=${inner}${more}`, body, options);
}

/**
 * Looks at a resource of the live figures until it is ended by what this returns: `onLines` gets the objects that changed.
 * Nothing is asked while the page is hidden: browsers have few connections to a server.
 */
export function watch(path, onLines, onError) {
  const abort = new AbortController();
  let source = null;
  let heard = false;
  const close = () => {
    source?.close();
    source = null;
  };
  const open = () => {
    close();
    if (abort.signal.aborted || document.hidden) return;
    source = new EventSource(BASE + path);
    heard = false;
    source.onmessage = (event) => {
      heard = true;
      setOffline(false);
      onLines(event.data.split("\n").map((line) => JSON.parse(line)));
    };
    source.onerror = () => {
      close();
      // A plain call tells whether the server is away, the login over, or nothing there to look at.
      call("GET", path, undefined, { signal: abort.signal }).then(
        // A feed that was refused, of a user who has too many, is not asked for again at once.
        () => (heard ? open() : wait(RETRY_MS).then(open)),
        (error) => {
          if (!abort.signal.aborted) onError(error);
        },
      );
    };
  };
  document.addEventListener("visibilitychange", open, { signal: abort.signal });
  open();
  return () => {
    abort.abort();
    close();
  };
}

/** The same, for operations that answer with `success`. */
export async function doApp(app, method, path, body) {
  return succeed(await callApp(app, method, path, body));
}

export async function doCall(method, path, body) {
  return succeed(await call(method, path, body));
}

function succeed(result) {
  if (result && result.success === false) throw new Refusal(200, result.message);
  return result;
}

export async function isLoggedIn() {
  const answer = await call("GET", "/authentication-status", undefined, { open: true });
  return answer.success;
}

export async function isFirstLogin() {
  const answer = await call("GET", "/first-login-status", undefined, { open: true });
  return answer.success;
}

/** The recordings of a page, and how many there are. */
export async function vods(app, { offset, size, search, sort }, signal) {
  const query = new URLSearchParams({ sort_by: sort, order_by: sort === "date" ? "desc" : "asc" });
  if (search) query.set("search", search);
  const count = search ? `/vods/count/${encodeURIComponent(search)}` : "/vods/count";
  const [list, all] = await Promise.all([
    callApp(app, "GET", `/vods/list/${offset}/${size}?${query}`, undefined, { signal }),
    // Some search texts cannot be part of a path.
    callApp(app, "GET", count, undefined, { signal }).catch(() => null),
  ]);
  return { list, count: all?.number ?? offset + list.length };
}

/** Uploads a file; `onProgress` hears the share that was sent. `fetch` does not tell how far it is. */
export function uploadFile(app, file, onProgress, signal) {
  return new Promise((done, fail) => {
    const form = new FormData();
    form.append("file", file, file.name);
    const query = new URLSearchParams({ _path: `${app}/rest/v2/vods/create`, name: file.name });
    const request = new XMLHttpRequest();
    request.open("POST", `${BASE}/request?${query}`);
    request.setRequestHeader("Accept", "application/json");
    request.responseType = "json";
    request.upload.onprogress = ({ loaded, total }) => onProgress(total ? loaded / total : 0);
    request.onerror = () => fail(new Refusal(0, ""));
    request.onabort = () => fail(new Refusal(0, ""));
    request.onload = () => {
      const answer = request.response;
      if (request.status === 200 && answer?.success) done(answer);
      else fail(new Refusal(request.status, answer?.message ?? ""));
    };
    signal.addEventListener("abort", () => request.abort());
    request.send(form);
  });
}

/** All broadcasts of a page, and how many there are. */
export async function broadcasts(app, { offset, size, search, sort, status, protocol }, signal) {
  const [sortBy, order] = { date: ["date", "desc"], name: ["name", "asc"], status: ["status", "asc"] }[sort];
  const wanted = new URLSearchParams(Object.entries({ search, status_by: status, protocol_by: protocol }).filter(([, value]) => value));
  const query = new URLSearchParams([...wanted, ["sort_by", sortBy], ["order_by", order]]);
  const [list, all] = await Promise.all([
    callApp(app, "GET", `/broadcasts/list/${offset}/${size}?${query}`, undefined, { signal }),
    callApp(app, "GET", `/broadcasts/count?${wanted}`, undefined, { signal }),
  ]);
  return { list, count: all.number };
}
