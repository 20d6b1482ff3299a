// The viewers of a broadcast, each with a button that disconnects them.

import { callApp, doApp } from "./panel-api.js";
import { Icon } from "./panel-icons.js";
import { attempt, html, isLive, span, usePolled } from "./panel-kit.js";
import { strings } from "./panel-strings.js";

const SHOWN = 100;
const EVERY_MS = 5000;

/** Viewers of this node, each with a button to disconnect it, and the number of viewers at the other nodes of a cluster. */
export function Viewers({ app, one }) {
  const path = `/broadcasts/${encodeURIComponent(one.streamId)}/viewers`;
  const live = isLive(one);
  const read = (signal) => (live ? callApp(app, "GET", `${path}/list/0/${SHOWN}`, undefined, { signal }) : Promise.resolve([]));
  const [list, again] = usePolled(read, live ? EVERY_MS : 0, [app, one.streamId, live]);
  const all = one.rtmpViewerCount + one.webRTCViewerCount + one.hlsViewerCount + one.dashViewerCount;
  const shown = list ?? [];
  const more = shown.length === SHOWN && all > SHOWN;
  // The counts may be a second older than the list.
  const elsewhere = list && !more ? all - shown.length : 0;
  const end = async ({ viewerId }) => {
    await attempt(() => doApp(app, "POST", `${path}/${viewerId}/stop`), strings.viewerEnded);
    again();
  };
  return html`<section class="card" id="viewers"><h2>${strings.viewers}</h2>
    ${shown.length === 0 && elsewhere <= 0 && html`<p class="quiet">${live ? strings.noViewers : strings.notLive}</p>`}
    <ul class="list">${shown.map((viewer) => html`<li key=${viewer.viewerId}>
      <div><span>${viewer.clientIp}</span><small class="quiet">${strings.protocols[viewer.protocol] ?? viewer.protocol} · ${strings.liveFor(span(viewer.seconds * 1000))}</small></div>
      <button type="button" class="small writes" aria-label=${strings.endViewerOf(viewer.clientIp)} onClick=${() => end(viewer)}><${Icon} name="stop" />${strings.endViewer}</button>
    </li>`)}
    </ul>
    ${elsewhere > 0 && html`<p class="quiet">${strings.viewersElsewhere(elsewhere)}</p>`}
    ${more && html`<p class="quiet">${strings.range(1, SHOWN, all)}</p>`}
  </section>`;
}
