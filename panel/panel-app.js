// The broadcasts of an application, a page at a time: search, create, start, stop, delete.

import { broadcasts, callApp, doApp } from "./panel-api.js";
import { allBroadcasts, exported, imported } from "./panel-files.js";
import { Icon } from "./panel-icons.js";
import { Badge, Confirm, Dialog, Field, OpenFile, Thumb, attempt, bits, codecsOf, html, isLive, save, span, toast, useEffect, useLive, usePolled, useRef, useState, valuesOf, viewersOf } from "./panel-kit.js";
import { strings } from "./panel-strings.js";
import { FirstSteps, TestButton } from "./panel-test.js";

const SIZE = 50;
const PROTOCOLS = ["RTMP", "SRT", "RTSP", "WebRTC"];
/** Limits of a healthy publisher. */
const SILENT_MS = 3000;
const LOSS_PERCENT = 2;
const SLOW = 0.9;
const SOURCES = ["streamSource", "ipCamera", "VoD", "playlist"];

function Create({ app, onClose, onDone }) {
  const [kind, setKind] = useState("liveStream");
  const create = async (event) => {
    event.preventDefault();
    const form = valuesOf(event.target);
    const body = { type: kind, name: form.name.trim() || null };
    if (form.id.trim()) body.streamId = form.id.trim();
    if (kind === "streamSource") body.streamUrl = form.url.trim();
    if (kind === "playlist") {
      body.playListItemList = form.items.split("\n").map((url) => url.trim()).filter(Boolean).map((streamUrl) => ({ streamUrl }));
      body.playlistLoopEnabled = form.loop === "on";
    }
    if (kind !== "liveStream") body.autoStartStopEnabled = form.demand === "on";
    const starts = form.start === "on";
    const made = await attempt(async () => {
      if (kind === "streamSource" && starts) {
        return (await doApp(app, "POST", "/broadcasts/create?autoStart=true", body)).dataId;
      }
      const record = await callApp(app, "POST", "/broadcasts/create", body);
      if (kind === "playlist" && starts) await doApp(app, "POST", `/broadcasts/${record.streamId}/start`);
      return record.streamId;
    });
    if (made) onDone(made);
  };
  return html`<${Dialog} title=${strings.create} onClose=${onClose}>
    <form onSubmit=${create}>
      <fieldset class="choices"><legend>${strings.kind}</legend>
        ${Object.entries(strings.kinds).map(([value, text]) => html`<label>
          <input type="radio" name="kind" checked=${kind === value} onChange=${() => setKind(value)} /> ${text}
        </label>`)}
      </fieldset>
      <${Field} label=${strings.name}><input name="name" autocomplete="off" autofocus /><//>
      <${Field} label=${strings.id} hint=${strings.idHint}>
        <input name="id" pattern="[A-Za-z0-9_.\\-]*" autocomplete="off" autocapitalize="off" spellcheck=${false} />
      <//>
      ${kind === "streamSource" && html`<${Field} label=${strings.sourceUrl}>
        <input name="url" required placeholder="rtsp://camera.example:554/stream" autocomplete="off" spellcheck=${false} />
      <//>`}
      ${kind === "playlist" && html`<${Field} label=${strings.items}>
        <textarea name="items" required rows="4" placeholder="https://files.example/one.mp4" spellcheck=${false}></textarea>
      <//>
      <label class="check"><input type="checkbox" name="loop" checked /> ${strings.loop}</label>`}
      ${kind !== "liveStream" && html`
        <label class="check"><input type="checkbox" name="start" /> ${strings.startNow}</label>
        <label class="check"><input type="checkbox" name="demand" /> ${strings.onDemand}</label>`}
      <div class="actions">
        <button type="button" onClick=${onClose}>${strings.cancel}</button>
        <button class="main">${strings.create}</button>
      </div>
    </form>
  <//>`;
}

/** Quality of the publisher's media on arrival: a text, and its severity. */
function health({ status, speed, live }) {
  if (status !== "broadcasting" || !live) return null;
  if (live.silentMs > SILENT_MS) return { kind: "bad", text: strings.healthSilent(span(live.silentMs)) };
  if (live.packetLostRatio > LOSS_PERCENT) return { kind: "bad", text: strings.healthLoss(live.packetLostRatio.toFixed(1)) };
  if (speed > 0 && speed < SLOW) return { kind: "busy", text: strings.healthSlow(speed.toFixed(2)) };
  return { kind: "good", text: strings.healthGood };
}

/** The source of a stream: protocol, codecs and picture size while it is live, otherwise its type. */
function Source({ one }) {
  const { live } = one;
  if (!live) return html`<span class="quiet">${strings.kindNames[one.type] ?? one.type}</span>`;
  const size = live.width ? `${live.width} × ${live.height}` : "";
  return html`<span>${[live.publishType, codecsOf(live)].filter(Boolean).join(" · ")}</span>
    <small class="quiet id">${[size, strings.kindNames[one.type]].filter(Boolean).join(" · ")}</small>`;
}

function Row({ app, one, selected, onSelect }) {
  const name = one.name || one.streamId;
  const path = `/broadcasts/${encodeURIComponent(one.streamId)}`;
  const run = (what) => attempt(() => doApp(app, "POST", `${path}/${what}`));
  const state = health(one);
  return html`<tr>
    <td class="tick writes"><input type="checkbox" checked=${selected} onChange=${onSelect} aria-label=${strings.select(name)} /></td>
    <td><div class="named"><${Thumb} app=${app} id=${one.streamId} live=${isLive(one)} /><div>
      <a href=${`#/broadcast/${encodeURIComponent(app)}/${encodeURIComponent(one.streamId)}`}>${name}</a>
      ${one.name && html`<small class="quiet id">${one.streamId}</small>`}</div></div>
    </td>
    <td data-label=${strings.status}><${Badge} status=${one.status} />${one.live?.isRecorded && html`<span class="badge" data-status="recording">${strings.isRecorded}</span>`}
      ${one.live && html`<small class="quiet id">${strings.liveFor(span(Date.now() - one.live.startTime))}</small>`}</td>
    <td data-label=${strings.source}><${Source} one=${one} /></td>
    <td data-label=${strings.health} class=${state ? "" : "blank"}>${state ? html`<span class="health" data-kind=${state.kind}>${state.text}</span>` : html`<span class="quiet">–</span>`}</td>
    <td class="number" data-label=${strings.viewers}>${isLive(one) ? viewersOf(one) : "–"}</td>
    <td class="number" data-label=${strings.bitrate}>${isLive(one) ? bits(one.bitrate) : "–"}</td>
    <td class="end">
      ${isLive(one) && html`<button type="button" class="small writes" aria-label=${strings.stopOne(name)} onClick=${() => run("stop")}><${Icon} name="stop" />${strings.stop}</button>`}
      ${!isLive(one) && SOURCES.includes(one.type) && html`<button type="button" class="small writes" aria-label=${strings.startOne(name)} onClick=${() => run("start")}><${Icon} name="play" />${strings.start}</button>`}
    </td>
  </tr>`;
}

function Files({ app, onDone }) {
  const take = async (text) => {
    const counts = await imported(app, text);
    if (counts) toast(strings.importedCounts(counts), counts.failed ? "bad" : "good");
    onDone();
  };
  const give = () => attempt(async () => save(`${app}-broadcasts.json`, exported(await allBroadcasts(app))));
  return html`<span class="writes"><${OpenFile} label=${strings.importFile} icon="upload" onText=${take} /></span>
    <button type="button" onClick=${give}><${Icon} name="download" />${strings.exportFile}</button>`;
}

export default function Application({ args: [app] }) {
  const [query, setQuery] = useState({ offset: 0, search: "", sort: "date", status: "", protocol: "" });
  const isFiltered = query.status !== "" || query.protocol !== "";
  const read = (signal) => broadcasts(app, { ...query, size: SIZE }, signal);
  const [page, again] = usePolled(read, 0, [app, ...Object.values(query)]);
  const ids = page?.list.map((one) => encodeURIComponent(one.streamId)).join(",");
  const now = useLive(page ? `/live/${encodeURIComponent(app)}?ids=${ids}` : null);
  const { broadcasts: count, liveStreams } = now.application ?? {};
  const counts = useRef(null);
  useEffect(() => {
    if (count === undefined) return;
    // Broadcasts have come or gone: read the list again, which has their order.
    const seen = `${count} ${liveStreams}`;
    if (counts.current !== null && counts.current !== seen) again();
    counts.current = seen;
  }, [count, liveStreams]);
  const [creating, setCreating] = useState(false);
  const [removing, setRemoving] = useState(false);
  const [chosen, setChosen] = useState(new Set());
  useEffect(() => { document.title = `${app} · ${strings.product}`; }, [app]);
  const change = (part) => {
    setQuery({ ...query, offset: 0, ...part });
    setChosen(new Set());
  };
  const toggle = (id) => {
    const next = new Set(chosen);
    if (!next.delete(id)) next.add(id);
    setChosen(next);
  };
  const list = (page?.list ?? []).map((one) => now.broadcasts[one.streamId] ?? one).filter((one) => one.status !== null);
  const all = list.length > 0 && list.every((one) => chosen.has(one.streamId));
  const remove = async () => {
    const ids = [...chosen].map(encodeURIComponent).join(",");
    await attempt(() => doApp(app, "DELETE", `/broadcasts?ids=${ids}`));
    setChosen(new Set());
    again();
  };
  return html`
    <header class="head">
      <h1>${app}</h1>
      <div class="actions">
        <${Files} app=${app} onDone=${again} />
        <${TestButton} app=${app} />
        <button type="button" class="main writes" onClick=${() => setCreating(true)}><${Icon} name="add" />${strings.create}</button>
      </div>
    </header>
    <div class="tools">
      <input type="search" placeholder=${strings.search} aria-label=${strings.search} onInput=${(event) => change({ search: event.target.value.trim() })} />
      <label>${strings.sortBy} <select value=${query.sort} onChange=${(event) => change({ sort: event.target.value })}>
        ${Object.entries(strings.sorts).map(([key, text]) => html`<option value=${key}>${text}</option>`)}
      </select></label>
      <label>${strings.status} <select value=${query.status} onChange=${(event) => change({ status: event.target.value })}>
        <option value="">${strings.all}</option>
        ${Object.entries(strings.statuses).map(([key, text]) => html`<option value=${key}>${text}</option>`)}
      </select></label>
      <label>${strings.protocol} <select value=${query.protocol} onChange=${(event) => change({ protocol: event.target.value })}>
        <option value="">${strings.all}</option>
        ${PROTOCOLS.map((name) => html`<option value=${name}>${name}</option>`)}
      </select></label>
      ${chosen.size > 0 && html`<button type="button" class="danger writes" onClick=${() => setRemoving(true)}>${strings.removeMany(chosen.size)}</button>`}
    </div>
    ${page && list.length === 0 && (query.search || isFiltered
      ? html`<p class="quiet">${strings.nothingFound}</p>`
      : html`<section class="empty"><h2>${strings.empty}</h2><p>${strings.emptyText}</p>
          <p><code>ffmpeg -re -i file.mp4 -c copy -f flv rtmp://${location.hostname}/${app}/stream1</code></p></section>
          <${FirstSteps} app=${app} />`)}
    ${list.length > 0 && html`<table>
      <thead><tr>
        <th class="tick writes"><input type="checkbox" checked=${all} aria-label=${strings.selectAll}
          onChange=${() => setChosen(new Set(all ? [] : list.map((one) => one.streamId)))} /></th>
        <th>${strings.name}</th><th>${strings.status}</th><th>${strings.source}</th><th>${strings.health}</th><th class="number">${strings.viewers}</th><th class="number">${strings.bitrate}</th><th></th>
      </tr></thead>
      <tbody>${list.map((one) => html`<${Row} key=${one.streamId} app=${app} one=${one}
        selected=${chosen.has(one.streamId)} onSelect=${() => toggle(one.streamId)} />`)}</tbody>
    </table>`}
    ${page && page.count > SIZE && html`<nav class="pages" aria-label=${strings.broadcasts}>
      <button type="button" disabled=${query.offset === 0} onClick=${() => change({ offset: Math.max(0, query.offset - SIZE) })}>${strings.newer}</button>
      <span>${strings.range(query.offset + 1, query.offset + list.length, page.count)}</span>
      <button type="button" disabled=${query.offset + SIZE >= page.count} onClick=${() => change({ offset: query.offset + SIZE })}>${strings.older}</button>
    </nav>`}
    ${creating && html`<${Create} app=${app} onClose=${() => setCreating(false)}
      onDone=${(id) => { setCreating(false); location.hash = `#/broadcast/${encodeURIComponent(app)}/${encodeURIComponent(id)}`; }} />`}
    ${removing && html`<${Confirm} title=${strings.removeMany(chosen.size)} text=${strings.removeManyText(chosen.size)}
      act=${remove} onClose=${() => setRemoving(false)} />`}
  `;
}
