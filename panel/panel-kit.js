// Functions and components that several pages share.

import { HERE, watch } from "./panel-api.js";
import { Icon } from "./panel-icons.js";
import { html, useEffect, useRef, useState } from "./preact.js";
import { strings } from "./panel-strings.js";

export { html, useEffect, useRef, useState };

// ---- text

export function bytes(count) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let at = 0;
  while (count >= 1000 && at < units.length - 1) {
    count /= 1000;
    at += 1;
  }
  return `${count < 10 && at > 0 ? count.toFixed(1) : Math.round(count)} ${units[at]}`;
}

export function bits(perSecond) {
  if (!perSecond) return "–";
  return perSecond >= 1e6 ? `${(perSecond / 1e6).toFixed(1)} Mb/s` : `${Math.round(perSecond / 1e3)} kb/s`;
}

export const percent = (share) => `${Math.round(share)} %`;

export function span(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const [days, hours, minutes] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  return minutes ? `${minutes} min ${seconds % 60} s` : `${seconds} s`;
}

/** A date without the time of day. */
export const day = (ms) => new Date(ms).toLocaleDateString(undefined, { dateStyle: "long" });

export const moment = (ms) => (ms ? new Date(ms).toLocaleString() : "–");

/** The codecs of a stream in their usual spelling; the API has `H264`. */
export const codecsOf = ({ videoCodec, audioCodec }) => [videoCodec, audioCodec].filter(Boolean).join(", ").replace(/\bH26(?=[45])/g, "H.26");

export const viewersOf = (broadcast) =>
  broadcast.rtmpViewerCount + broadcast.webRTCViewerCount + broadcast.hlsViewerCount + (broadcast.dashViewerCount || 0);

/** Saves text as a download of the browser. */
export function save(name, text, type = "application/json") {
  const url = URL.createObjectURL(new Blob([text], { type }));
  Object.assign(document.createElement("a"), { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** A button that opens a file and passes on its text. */
export function OpenFile({ label, icon, accept = ".json,application/json", onText }) {
  const input = useRef(null);
  const read = async () => {
    const [file] = input.current.files;
    input.current.value = "";
    if (file) onText(await file.text(), file.name);
  };
  return html`<input ref=${input} type="file" class="hidden" accept=${accept} tabindex="-1" aria-label=${label} onChange=${read} />
    <button type="button" onClick=${() => input.current.click()}><${Icon} name=${icon} />${label}</button>`;
}

export const isLive = (broadcast) => broadcast.status === "broadcasting" || broadcast.status === "preparing";

// ---- hooks

/** Repeats a read while the page is visible. Returns the latest value, a function that reads at once, and the error. */
export function usePolled(read, everyMs, keys) {
  const [value, setValue] = useState(null);
  const [error, setError] = useState(null);
  const again = useRef(() => {});
  useEffect(() => {
    const abort = new AbortController();
    let timer = 0;
    const look = async () => {
      clearTimeout(timer);
      try {
        const came = await read(abort.signal);
        if (abort.signal.aborted) return;
        setValue(came);
        setError(null);
      } catch (failure) {
        if (abort.signal.aborted) return;
        setError(failure);
      }
      clearTimeout(timer);
      if (everyMs && !document.hidden) timer = setTimeout(look, everyMs);
    };
    const shown = () => { if (!document.hidden) look(); };
    document.addEventListener("visibilitychange", shown);
    again.current = look;
    look();
    return () => {
      abort.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", shown);
    };
  }, keys);
  return [value, () => again.current(), error];
}

/** Live figures of a path: the latest value of each kind of line by its name, and broadcasts by id. Without a path, nothing. */
export function useLive(path) {
  const [state, setState] = useState({ broadcasts: {}, error: null });
  useEffect(() => {
    setState((old) => ({ ...old, error: null }));
    if (!path) return undefined;
    const take = (lines) => setState((old) => {
      const next = { ...old, error: null, broadcasts: { ...old.broadcasts } };
      for (const line of lines) {
        if (line.broadcast) next.broadcasts[line.broadcast.streamId] = line.broadcast;
        else Object.assign(next, line);
      }
      return next;
    });
    return watch(path, take, (error) => setState((old) => ({ ...old, error })));
  }, [path]);
  return state;
}

/** Growth of a counter per second, averaged over its last readings. Null until there are two readings. */
export function useRate(reading, count) {
  const seen = useRef({ reading: null, points: [] });
  if (reading && reading !== seen.current.reading) {
    const points = [...seen.current.points, [performance.now(), count]].slice(-4);
    // The counter starts again at zero with each publisher.
    seen.current = { reading, points: points.length > 1 && count < points.at(-2)[1] ? points.slice(-1) : points };
  }
  const { points } = seen.current;
  if (!reading || points.length < 2) return null;
  const [[from, first], [to, last]] = [points[0], points.at(-1)];
  return to > from ? ((last - first) * 1000) / (to - from) : 0;
}

/** The last values of a figure; each reading adds one. `past` has the values from before the page was opened, the newest last. */
export function useTrail(reading, value, past = null, length = 60) {
  const trail = useRef([]);
  const last = useRef(null);
  const isSeeded = useRef(false);
  if (past && !isSeeded.current) {
    isSeeded.current = true;
    trail.current = [...past, ...trail.current].slice(-length);
  }
  if (reading && reading !== last.current && value !== null) {
    last.current = reading;
    trail.current = [...trail.current, Number(value) || 0].slice(-length);
  }
  return trail.current;
}

// ---- messages

let show = () => {};

export function toast(text, kind = "good") {
  show({ text, kind, at: Date.now() });
}

/** Runs the action of a button, and shows a message if it fails. */
export async function attempt(work, done) {
  try {
    const result = await work();
    if (done) toast(done);
    return result ?? true;
  } catch (error) {
    toast(error.message ? `${strings.failed}: ${error.message}` : strings.failed, "bad");
    return null;
  }
}

export function Toasts() {
  const [list, setList] = useState([]);
  show = (one) => {
    setList((old) => [...old.slice(-2), one]);
    setTimeout(() => setList((old) => old.filter((other) => other !== one)), one.kind === "bad" ? 8000 : 3000);
  };
  return html`<div class="toasts" role="status" aria-live="polite">
    ${list.map((one) => html`<p key=${one.at} class=${`toast ${one.kind}`}>${one.text}</p>`)}
  </div>`;
}

// ---- elements

export function Badge({ status }) {
  const text = strings.statuses[status] ?? status;
  return html`<span class="badge" data-status=${status}>${text}</span>`;
}

function load(url) {
  return new Promise((done) => {
    const picture = new Image();
    picture.onload = () => done(url);
    picture.onerror = () => done(null);
    picture.src = url;
  });
}

/** A preview picture of a live stream, or nothing if the server has none. */
export function Thumb({ app, id, live }) {
  const [url, setUrl] = useState(null);
  useEffect(() => {
    setUrl(null);
    if (!live) return undefined;
    let isGone = false;
    const wanted = `${HERE}${encodeURIComponent(app)}/previews/${encodeURIComponent(id)}.png`;
    load(wanted).then((found) => { if (!isGone) setUrl(found); });
    return () => { isGone = true; };
  }, [app, id, live]);
  return url && html`<img class="thumb" src=${url} alt="" width="96" height="54" loading="lazy" />`;
}

export function Copy({ text, label }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Without a secure context, only the old clipboard function exists.
      const field = document.createElement("textarea");
      field.value = text;
      document.body.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
    }
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return html`<button type="button" class="small" onClick=${copy} aria-label=${`${strings.copy}: ${label}`}>
    ${done ? strings.copied : strings.copy}
  </button>`;
}

/** A line chart without axes. */
export function Spark({ values, top, label }) {
  const [width, height] = [120, 32];
  const highest = Math.max(top ?? 0, ...values, 1);
  const step = width / Math.max(values.length - 1, 1);
  const points = values.map((value, n) => `${(n * step).toFixed(1)},${(height - 1 - (value / highest) * (height - 2)).toFixed(1)}`);
  return html`<svg class="spark" viewBox=${`0 0 ${width} ${height}`} preserveAspectRatio="none" role="img" aria-label=${label}>
    ${points.length > 1 && html`<polygon points=${`0,${height} ${points.join(" ")} ${width},${height}`} />
      <polyline points=${points.join(" ")} />`}
  </svg>`;
}

export function Field({ label, hint, children }) {
  return html`<label class="field"><span>${label}</span>${children}${hint && html`<small>${hint}</small>`}</label>`;
}

/** A modal dialog; `onClose` is called when it closes. */
export function Dialog({ title, onClose, children }) {
  const element = useRef(null);
  useEffect(() => {
    element.current.showModal();
  }, []);
  return html`<dialog ref=${element} onClose=${onClose} aria-label=${title}>
    <h2>${title}</h2>
    ${children}
  </dialog>`;
}

/** Time before the expiry of a certificate at which it should have been renewed. */
const RENEWED_BY_MS = 14 * 24 * 3600 * 1000;

/** The expiry date of the certificate in use. */
export function CertificateDate({ at }) {
  if (!at) return null;
  const left = at - Date.now();
  const text = left < 0 ? strings.certificateOver(day(at)) : strings.certificateUntil(day(at));
  return html`<p class=${left < RENEWED_BY_MS ? "warning" : "quiet"} role=${left < RENEWED_BY_MS ? "alert" : undefined}>${text}</p>`;
}

/** Asks for confirmation before something is deleted. */
export function Confirm({ title, text, act, onClose }) {
  const [busy, setBusy] = useState(false);
  const go = async (event) => {
    event.preventDefault();
    setBusy(true);
    await act();
    onClose();
  };
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <form onSubmit=${go}>
      <p>${text}</p>
      <div class="actions">
        <button type="button" onClick=${onClose}>${strings.cancel}</button>
        <button class="danger" disabled=${busy}>${title}</button>
      </div>
    </form>
  <//>`;
}

/** The values of a form, by name. */
export const valuesOf = (form) => Object.fromEntries(new FormData(form).entries());
