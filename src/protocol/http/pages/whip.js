// WHIP (RFC 9725) and WHEP (draft-ietf-wish-whep): an offer by POST, and an answer with the URL of a session.
//
// The server is an ICE-lite agent: its answer contains all its candidates, and it learns the browser's candidates from
// connectivity checks. The offer is therefore sent without candidates, and no PATCH follows.

/** Maximum time to wait for an answer; longer than the server itself waits for an admission or a stream. */
const PATIENCE_MS = 15000;
/** Maximum time to wait for the answer to DELETE. */
const GOODBYE_MS = 1000;

/** The error of a request that the server refused or did not answer. */
export class Refusal extends Error {
  /**
   * @param {number} status HTTP status; 0 if there was no answer
   * @param {string} text message of the server
   */
  constructor(status, text) {
    super(text.replace(/\.$/, "") || (status ? `status ${status}` : "the server does not answer"));
    this.name = "Refusal";
    this.status = status;
  }
}

/**
 * Returns the ICE servers in `Link` fields (RFC 9725 §4.6).
 * @param {string | null} field all `Link` fields, joined by commas
 * @returns {RTCIceServer[]}
 */
export function iceServersOf(field) {
  const link = /<([^>]*)>((?:\s*;\s*[\w-]+(?:\s*=\s*(?:"(?:[^"\\]|\\.)*"|[^",;\s]*))?)*)/g;
  const parameter = /;\s*([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^",;\s]*))/g;
  const servers = [];
  for (const [, urls, rest] of (field || "").matchAll(link)) {
    const values = {};
    for (const [, name, quoted, plain] of rest.matchAll(parameter)) {
      values[name.toLowerCase()] = quoted === undefined ? plain : quoted.replace(/\\(.)/g, "$1");
    }
    if (!(values.rel || "").toLowerCase().split(/\s+/).includes("ice-server") || !/^(stun|turn)s?:/i.test(urls)) continue;
    const { username, credential } = values;
    servers.push(username === undefined ? { urls } : { urls, username, credential: credential || "" });
  }
  return servers;
}

/**
 * Returns the URL of a session. If the host is that of the endpoint, the endpoint's scheme is used, because
 * behind a proxy that terminates TLS the server may not know the scheme.
 * @param {string | null} location
 * @param {string} endpoint
 * @returns {string | null}
 */
export function sessionUrl(location, endpoint) {
  if (!location) return null;
  const base = new URL(endpoint);
  const url = new URL(location, base);
  if (url.host === base.host) url.protocol = base.protocol;
  return url.href;
}

/**
 * Adds to an offer that Opus is received in stereo (RFC 7587 §6.1). Otherwise Chromium mixes both channels into one.
 * @param {string} sdp
 */
export function withStereo(sdp) {
  for (const [, payload] of sdp.matchAll(/^a=rtpmap:(\d+) opus\/48000\/2\r?$/gim)) {
    const line = new RegExp(`^a=fmtp:${payload} (?!.*\\bstereo=)[^\\r\\n]*`, "m");
    sdp = sdp.replace(line, "$&;stereo=1");
  }
  return sdp;
}

/** A session at a WHIP or WHEP endpoint. */
export class Session {
  #token;

  constructor(url, etag, token) {
    /** URL that ends the session; `null` if the server sent none. */
    this.url = url;
    /** The tag of the ICE session, for conditional PATCH requests. */
    this.etag = etag;
    this.#token = token;
  }

  /**
   * Offers the transceivers of the peer connection, and applies the server's answer.
   * @param {RTCPeerConnection} peer
   * @param {string} endpoint absolute URL
   * @param {string | null} token sent as `Authorization: Bearer`
   * @returns {Promise<Session>}
   * @throws {Refusal}
   */
  static async open(peer, endpoint, token = null) {
    const { type, sdp } = await peer.createOffer();
    const offer = { type, sdp: withStereo(sdp) };
    const headers = { "Content-Type": "application/sdp", Accept: "application/sdp", ...authorization(token) };
    const { response, body } = await exchange(endpoint, { method: "POST", headers, body: offer.sdp });
    if (response.status !== 201) throw new Refusal(response.status, textOf(response, body));
    const session = new Session(sessionUrl(response.headers.get("Location"), endpoint), response.headers.get("ETag"), token);
    try {
      const iceServers = iceServersOf(response.headers.get("Link"));
      // Setting the local description starts the gathering of candidates, so the ICE servers must be known before.
      if (iceServers.length) peer.setConfiguration({ ...peer.getConfiguration(), iceServers });
      await peer.setLocalDescription(offer);
      await peer.setRemoteDescription({ type: "answer", sdp: body });
    } catch (error) {
      session.end(peer);
      throw error;
    }
    return session;
  }

  /**
   * Ends the session, also while the page is being closed. The peer connection is closed after the request, because the
   * server would otherwise take the end of the connection for an interruption.
   * @param {RTCPeerConnection} peer
   */
  end(peer) {
    const url = this.url;
    this.url = null;
    const timer = setTimeout(() => peer.close(), GOODBYE_MS);
    const closed = () => {
      clearTimeout(timer);
      peer.close();
    };
    if (!url) return closed();
    const headers = authorization(this.#token);
    fetch(url, { method: "DELETE", headers, keepalive: true, cache: "no-store" }).then(closed, closed);
  }
}

/** @returns {Promise<{ response: Response, body: string }>} */
async function exchange(url, init) {
  const abort = new AbortController();
  const timer = setTimeout(() => abort.abort(), PATIENCE_MS);
  try {
    const response = await fetch(url, { ...init, cache: "no-store", signal: abort.signal });
    return { response, body: await response.text() };
  } catch {
    throw new Refusal(0, "");
  } finally {
    clearTimeout(timer);
  }
}

/** Returns the message of an error response, which is plain text or an HTML page with the message. */
function textOf(response, body) {
  const isPage = (response.headers.get("Content-Type") || "").includes("html");
  // Safe: parsing the document runs no scripts and loads nothing.
  const page = isPage && new DOMParser().parseFromString(body, "text/html");
  const text = page ? page.querySelector("p")?.textContent.replace(/^Message\s*/, "") || page.title : body;
  return text.trim().slice(0, 200);
}

const authorization = (token) => (token ? { Authorization: `Bearer ${token}` } : {});
