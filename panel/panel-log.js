// The end of the log, as it grows.

import { call } from "./panel-api.js";
import { html, useEffect, usePolled, useRef, useState } from "./panel-kit.js";
import { strings } from "./panel-strings.js";

const EVERY_MS = 2000;
const CHARACTERS = 100_000;
const LEVELS = Object.keys(strings.levels);

/** The level of a line, and of those that go on from it. */
function levelOf(line, before) {
  const found = LEVELS.findIndex((level) => line.includes(` ${level}`));
  return found < 0 ? before : found;
}

export default function Log() {
  const [follows, setFollows] = useState(true);
  const [least, setLeast] = useState("DEBUG");
  const [filter, setFilter] = useState("");
  const read = (signal) => call("GET", `/log-file/-1/${CHARACTERS}?logType=server`, undefined, { signal });
  const [log] = usePolled(read, follows ? EVERY_MS : 0, [follows]);
  const box = useRef(null);
  useEffect(() => { document.title = `${strings.log} · ${strings.product}`; }, []);
  useEffect(() => {
    if (follows && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [log, follows, least, filter]);
  const wanted = filter.toLowerCase();
  let level = 0;
  const lines = (log?.logContent ?? "").split("\n").slice(1).filter((line) => line !== "").map((line) => {
    level = levelOf(line, level);
    return { line, level };
  }).filter(({ line, level: own }) => own >= LEVELS.indexOf(least) && line.toLowerCase().includes(wanted));
  return html`
    <header class="head"><h1>${strings.log}</h1></header>
    <div class="tools">
      <input type="search" placeholder=${strings.filter} aria-label=${strings.filter} onInput=${(event) => setFilter(event.target.value)} />
      <label>${strings.level} <select value=${least} onChange=${(event) => setLeast(event.target.value)}>
        ${LEVELS.map((name) => html`<option value=${name}>${strings.levels[name]}</option>`)}
      </select></label>
      <label class="check"><input type="checkbox" checked=${follows} onChange=${(event) => setFollows(event.target.checked)} /> ${strings.follow}</label>
    </div>
    <div class="log" ref=${box} tabindex="0" role="log" aria-label=${strings.log}>
      ${lines.map(({ line, level: own }, n) => html`<p key=${n} data-level=${LEVELS[own]}>${line}</p>`)}
    </div>`;
}
