// Calls of the REST API. When the session has ended, the user logs in again and the call is repeated. When the server does not
// answer, reads are repeated until it does.

/** The URL of the panel's folder. A proxy may serve it at any path. */
export const HERE = new URL(".", import.meta.url).href;
const BASE = `${HERE}rest/v2`;
const RETRY_MS = 2000;
/** Name under which the browser keeps the roles of the user who logged in last. */
const ROLES = "roles";
/** Roles, the one with the most rights first. */
const RANKS = ["ADMIN", "USER", "READ_ONLY"];

/** Functions that are called when the connection to the server is lost or restored. */
const listeners = new Set();
let isOffline = false;
/** Shows the login dialog; set by `panel.js`. */
let logIn = () => Promise.reject(new Error("no login"));
/** The pending login, which all waiting calls share. */
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

/** Keeps the message of a successful login: `scope/ROLE`, or an object with the role in each scope. */
export const noteRoles = (message) => localStorage.setItem(ROLES, message ?? "");

/**
 * The role of the user in an application, or without one, in the server; READ_ONLY where the user has no role. Pages hide what
 * the role does not allow. If the login told no roles at all, nothing is hidden; the server refuses what is not allowed.
 */
export function roleIn(app) {
  const told = localStorage.getItem(ROLES) ?? "";
  if (!told) return RANKS[0];
  const at = told.lastIndexOf("/");
  const roles = told.startsWith("{") ? JSON.parse(told) : { [told.slice(0, at)]: told.slice(at + 1) };
  return RANKS.find((role) => [roles.system, roles[app]].includes(role)) ?? RANKS.at(-1);
}

const wait = (ms) => new Promise((done) => setTimeout(done, ms));

/** An error response, or no response (status 0). */
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
    // With a cookie, the server accepts a write only if its type shows that it is not a form of another page.
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

/** The reason in an error response: `message` of a JSON object, or the message of an error page. */
const reasonOf = (answer) => (typeof answer === "string" ? /<b>Message<\/b>([^<]*)/.exec(answer)?.[1].trim() : answer?.message) ?? "";

/** Calls the management API and returns the successful response; any other one throws a `Refusal`. */
async function respond(method, path, body, { open = false, signal } = {}) {
  for (;;) {
    const response = await send(method, path, body, signal);
    if (response.ok) return response;
    if (response.status === 403 && !open && !(await isLoggedIn())) {
      pending ??= logIn().finally(() => { pending = null; });
      await pending;
      continue;
    }
    throw new Refusal(response.status, reasonOf(await read(response)));
  }
}

/** Calls the management API and returns the body. */
export async function call(method, path, body, options) {
  return read(await respond(method, path, body, options));
}

/** A page of a list whose pages the server limits in bytes; `next` is the offset of the next page, or null. */
export async function pageOf(path, offset, signal) {
  return paged(await respond("GET", `${path}?offset=${offset}`, undefined, { signal }));
}

async function paged(response) {
  const next = response.headers.get("Next-Offset");
  return { list: (await read(response)) ?? [], next: next === null ? null : Number(next) };
}

/** The path of an application's API in the management API, where the login is valid: the inner path is a parameter, encoded once. */
function inApp(app, path) {
  const [plain, query] = path.split("?");
  const more = query ? `&${query}` : "";
  return `/request?_path=${encodeURIComponent(`${app}/rest/v2${decodeURIComponent(plain)}`)}${more}`;
}

/** Calls an application's API. */
export function callApp(app, method, path, body, options) {
  return call(method, inApp(app, path), body, options);
}

/** A page of an application's list, with the offset of the next page if the server has cut it short. */
export async function pageOfApp(app, path) {
  return paged(await respond("GET", inApp(app, path)));
}

/**
 * Subscribes to live figures: `onLines` gets the objects that changed. Returns a function that ends the subscription.
 * While the page is hidden there is no connection, because browsers allow few connections to a server.
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
      // An ordinary call shows whether the server is unreachable, the login has ended, or the resource does not exist.
      call("GET", path, undefined, { signal: abort.signal }).then(
        // If the feed was refused, because the user has too many, wait before the next attempt.
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

/** Calls an application's operation that answers with `success`; `false` throws a `Refusal`. */
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

/** A page of recordings, and their total number. */
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

/** Uploads a file; `onProgress` gets the share that was sent. `fetch` does not report progress. */
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

/** A page of broadcasts, and their total number. */
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
