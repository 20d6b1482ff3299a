// Who watches a broadcast, and the way to disconnect somebody.

import { callApp, doApp } from "./panel-api.js";
import { Icon } from "./panel-icons.js";
import { attempt, html, isLive, span, usePolled } from "./panel-kit.js";
import { strings } from "./panel-strings.js";

const SHOWN = 100;
const EVERY_MS = 5000;

/** Viewers with a connection of their own, and how many others there are: those of HLS and DASH have none. */
export function Viewers({ app, one }) {
  const path = `/broadcasts/${encodeURIComponent(one.streamId)}/viewers`;
  const live = isLive(one);
  const read = (signal) => (live ? callApp(app, "GET", `${path}/list/0/${SHOWN}`, undefined, { signal }) : Promise.resolve([]));
  const [list, again] = usePolled(read, live ? EVERY_MS : 0, [app, one.streamId, live]);
  const others = [["HLS", one.hlsViewerCount], ["DASH", one.dashViewerCount]].filter(([, count]) => count > 0);
  const all = one.rtmpViewerCount + one.webRTCViewerCount;
  const end = async ({ viewerId }) => {
    await attempt(() => doApp(app, "POST", `${path}/${viewerId}/stop`), strings.viewerEnded);
    again();
  };
  return html`<section class="card" id="viewers"><h2>${strings.viewers}</h2>
    ${(list ?? []).length === 0 && others.length === 0 && html`<p class="quiet">${live ? strings.noViewers : strings.notLive}</p>`}
    <ul class="list">${(list ?? []).map((viewer) => html`<li key=${viewer.viewerId}>
      <div><span>${viewer.clientIp}</span><small class="quiet">${strings.protocols[viewer.protocol] ?? viewer.protocol} · ${strings.liveFor(span(viewer.seconds * 1000))}</small></div>
      <button type="button" class="small" aria-label=${strings.endViewerOf(viewer.clientIp)} onClick=${() => end(viewer)}><${Icon} name="stop" />${strings.endViewer}</button>
    </li>`)}
    ${others.map(([protocol, count]) => html`<li key=${protocol}><div><span>${strings.viewersCounted(count, protocol)}</span><small class="quiet">${strings.countedOnly}</small></div></li>`)}
    </ul>
    ${all > SHOWN && html`<p class="quiet">${strings.range(1, SHOWN, all)}</p>`}
  </section>`;
}
