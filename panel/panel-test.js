// A test stream from this browser: a picture with a clock, and a tone, published over WHIP by the panel itself.

import { HERE } from "./panel-api.js";
import { Icon } from "./panel-icons.js";
import { attempt, html, useEffect, useState } from "./panel-kit.js";
import { strings } from "./panel-strings.js";

const ID = "test";
/** The codec that players of all protocols can decode. */
const CODEC = "H264";

/** The running test stream, `{ app, id, state, end }`, or null. */
let running = null;
const listeners = new Set();

function tell(change) {
  running = change;
  for (const listener of listeners) listener(running);
}

/** Starts to publish, and returns the id when the stream is live. The modules come from the application's publish page. */
export async function startTest(app) {
  running?.end();
  const base = `${HERE}${encodeURIComponent(app)}/`;
  const [{ Publisher, videoCodecs }, { testPattern }] = await Promise.all([import(`${base}publisher.js`), import(`${base}test_pattern.js`)]);
  const source = testPattern(ID);
  return new Promise((done, fail) => {
    const end = (error) => {
      publisher.stop();
      source.stop();
      if (running?.end === end) tell(null);
      fail(error ?? new Error(strings.stopped));
    };
    const publisher = new Publisher({
      endpoint: `${base}whip/${ID}`,
      token: null,
      stream: source.stream,
      codec: videoCodecs().includes(CODEC) ? CODEC : "",
      bitsMax: 0,
      onState: (state, text) => {
        if (state === "failed") return end(new Error(text));
        if (state === "live") done(ID);
        if (running?.end === end) tell({ ...running, state });
      },
    });
    tell({ app, id: ID, state: "connecting", end });
    publisher.start();
  });
}

/** A bar that is shown while this page sends a stream, with a button to end it. */
export function TestBar() {
  const [test, setTest] = useState(running);
  useEffect(() => {
    listeners.add(setTest);
    return () => listeners.delete(setTest);
  }, []);
  if (!test) return null;
  return html`<aside class="testbar" aria-label=${strings.testStream}>
    <span><span class="dot" data-state=${test.state}></span>${strings.testIsSent(test.app, test.id)}</span>
    <a class="button small" href=${`#/broadcast/${encodeURIComponent(test.app)}/${test.id}`}>${strings.show}</a>
    <button type="button" class="small" onClick=${() => test.end()}><${Icon} name="stop" />${strings.stopTest}</button>
  </aside>`;
}

/** A button that starts a test stream and opens its page, where it plays. */
export function TestButton({ app, main }) {
  const [busy, setBusy] = useState(false);
  const start = async () => {
    setBusy(true);
    const id = await attempt(() => startTest(app));
    setBusy(false);
    if (id) location.hash = `#/broadcast/${encodeURIComponent(app)}/${id}/watch`;
  };
  return html`<button type="button" class=${main ? "main writes" : "writes"} disabled=${busy} onClick=${start}>
    <${Icon} name="start" />${busy ? strings.testBegins : strings.testStream}</button>`;
}

/** First steps for a user who has just started the server. */
export function FirstSteps({ app }) {
  return html`<section class="card first"><h2>${strings.firstSteps}</h2>
    <ol>${strings.firstList.map(([title, text]) => html`<li key=${title}><strong>${title}</strong><span class="quiet">${text}</span></li>`)}</ol>
    <${TestButton} app=${app} main />
  </section>`;
}
