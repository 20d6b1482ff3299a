// The end of the log, which follows as the log grows.

import { call } from "./panel-api.js";
import { Icon } from "./panel-icons.js";
import { attempt, bytes, html, save, useEffect, usePolled, useRef, useState } from "./panel-kit.js";
import { strings } from "./panel-strings.js";

const EVERY_MS = 2000;
const CHARACTERS = 100_000;
/** Maximum characters of one answer of the server; then those of a download. */
const PART = 500_000;
const FILE = 20_000_000;
const LEVELS = Object.keys(strings.levels);
/** A line in the default format: time, thread, level, module, text. */
const LINE = /^(\S+ [\d:,.]+) \[([^\]]*)\] (\w+)\s+(\S+) - (.*)$/s;
const FIELD = /([A-Za-z_]+)=("(?:[^"\\]|\\.)*"|\S+)/g;
const STREAM = /\bkey="?([^\s"]+)/;

/** The level of a line. A line without a level continues the one before it, and has the same level. */
function levelOf(line, before) {
  const found = LEVELS.findIndex((level) => line.includes(` ${level}`) || line.includes(`"${level}"`));
  return found < 0 ? before : found;
}

/** A text with its fields (`name=value`) highlighted. */
function marked(text) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(FIELD)) {
    parts.push(text.slice(end, match.index), html`<span class="name">${match[1]}=</span><span class="val">${match[2]}</span>`);
    end = match.index + match[0].length;
  }
  return [...parts, text.slice(end)];
}

function Line({ line, level }) {
  const [, time, thread, , module, text] = LINE.exec(line) ?? [];
  if (!time) return html`<p data-level=${level}>${line}</p>`;
  return html`<p data-level=${level}><span class="time">${time}</span> <span class="level">${level}</span> ${marked(text)} <span class="time">${module} [${thread}]</span></p>`;
}

/** Downloads the end of the log file, as much as a browser can easily hold. */
async function download() {
  const path = (offset, size) => `/log-file/${offset}/${size}?logType=server`;
  const { logFileSize } = await call("GET", path(-1, 1));
  const parts = [];
  let at = Math.max(0, (logFileSize ?? 0) - FILE);
  while (at < logFileSize) {
    const { logContent, logContentSize } = await call("GET", path(at, PART));
    if (!logContentSize) break;
    parts.push(logContent);
    at += logContentSize;
  }
  save("millstream.log", parts.join(""), "text/plain");
}

export default function Log() {
  const [follows, setFollows] = useState(true);
  const [least, setLeast] = useState("DEBUG");
  const [filter, setFilter] = useState("");
  const [stream, setStream] = useState("");
  const read = (signal) => call("GET", `/log-file/-1/${CHARACTERS}?logType=server`, undefined, { signal });
  const [log] = usePolled(read, follows ? EVERY_MS : 0, [follows]);
  const box = useRef(null);
  useEffect(() => { document.title = `${strings.log} · ${strings.product}`; }, []);
  useEffect(() => {
    if (follows && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [log, follows, least, filter, stream]);
  const wanted = filter.toLowerCase();
  let level = 0;
  const all = (log?.logContent ?? "").split("\n");
  // The first line is incomplete unless the whole log was read.
  if (log && log.logFileSize > log.logContentSize) all.shift();
  const lines = all.filter((line) => line !== "").map((line) => {
    level = levelOf(line, level);
    return { line, level };
  });
  const streams = [...new Set(lines.map(({ line }) => STREAM.exec(line)?.[1]).filter(Boolean))].sort();
  const shown = lines.filter(({ line, level: own }) =>
    own >= LEVELS.indexOf(least) && line.toLowerCase().includes(wanted) && (!stream || STREAM.exec(line)?.[1] === stream));
  return html`
    <header class="head"><h1>${strings.log}</h1>
      <div class="actions">
        ${log?.logFileSize > 0 && html`<p class="quiet">${strings.logSize(bytes(log.logContentSize), bytes(log.logFileSize))}</p>`}
        <button type="button" onClick=${() => attempt(download)}><${Icon} name="download" />${strings.downloadLog}</button>
      </div>
    </header>
    <div class="tools">
      <input type="search" placeholder=${strings.filter} aria-label=${strings.filter} onInput=${(event) => setFilter(event.target.value)} />
      <label>${strings.level} <select value=${least} onChange=${(event) => setLeast(event.target.value)}>
        ${LEVELS.map((name) => html`<option value=${name}>${strings.levels[name]}</option>`)}
      </select></label>
      <label>${strings.stream} <select value=${stream} onChange=${(event) => setStream(event.target.value)}>
        <option value="">${strings.allStreams}</option>
        ${streams.map((name) => html`<option value=${name}>${name}</option>`)}
      </select></label>
      <label class="check"><input type="checkbox" checked=${follows} onChange=${(event) => setFollows(event.target.checked)} /> ${strings.follow}</label>
    </div>
    <div class="log" ref=${box} tabindex="0" role="log" aria-label=${strings.log}>
      ${shown.map(({ line, level: own }, n) => html`<${Line} key=${n} line=${line} level=${LEVELS[own]} />`)}
      ${log && shown.length === 0 && html`<p class="quiet">${strings.noLines}</p>`}
    </div>`;
}
