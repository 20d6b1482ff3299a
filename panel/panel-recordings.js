// The recordings of an application, a page at a time: search, play, download, upload, delete.

import { HERE, call, doApp, uploadFile, vods } from "./panel-api.js";
import { Icon } from "./panel-icons.js";
import { Confirm, Copy, Dialog, attempt, bytes, html, moment, span, toast, useEffect, useLive, usePolled, useRef, useState } from "./panel-kit.js";
import { strings } from "./panel-strings.js";

const SIZE = 50;
/** Extensions of the files that the server accepts. */
const ENDINGS = [".mp4", ".webm", ".mov", ".avi", ".mp3", ".wmv"];

const fileOf = (app, one) => `${HERE}${encodeURIComponent(app)}/${one.filePath.split("/").map(encodeURIComponent).join("/")}`;

function Player({ app, one, onClose }) {
  const [fails, setFails] = useState(false);
  return html`<${Dialog} title=${one.vodName} onClose=${onClose}>
    ${fails && html`<p>${strings.notPlayable}</p>`}
    <video class="player" controls autoplay src=${fileOf(app, one)} aria-label=${one.vodName} onError=${() => setFails(true)}></video>
    <div class="actions"><button type="button" onClick=${onClose}>${strings.close}</button></div>
  <//>`;
}

/** Uploads a file, and shows the progress. */
function Upload({ app, onDone }) {
  const [sending, setSending] = useState(null);
  const input = useRef(null);
  const abort = useRef(null);
  useEffect(() => () => abort.current?.abort(), []);
  const send = async () => {
    const [file] = input.current.files;
    input.current.value = "";
    if (!file) return;
    if (!ENDINGS.some((ending) => file.name.endsWith(ending))) {
      toast(strings.uploadKinds(ENDINGS.join(" ")), "bad");
      return;
    }
    abort.current = new AbortController();
    const { signal } = abort.current;
    const progress = (share) => setSending({ name: file.name, share });
    progress(0);
    await attempt(() => uploadFile(app, file, progress, signal), strings.fileUploaded(file.name));
    setSending(null);
    onDone();
  };
  return html`<input ref=${input} type="file" class="hidden" id="upload" aria-label=${strings.uploadFile} accept=${ENDINGS.join(",")} tabindex="-1" onChange=${send} />
    ${sending
      ? html`<label class="progress">${sending.name} <progress value=${sending.share} max="1" aria-label=${strings.uploadFile}></progress> ${Math.round(sending.share * 100)} %</label>
          <button type="button" onClick=${() => abort.current.abort()}>${strings.cancel}</button>`
      : html`<button type="button" class="main" onClick=${() => input.current.click()}><${Icon} name="upload" />${strings.uploadFile}</button>`}`;
}

function Row({ app, one, selected, onSelect, onPlay, onRemove }) {
  const file = fileOf(app, one);
  return html`<tr>
    <td class="tick writes"><input type="checkbox" checked=${selected} onChange=${onSelect} aria-label=${strings.select(one.vodName)} /></td>
    <td><button type="button" class="link" onClick=${onPlay}>${one.vodName}</button>
      <small class="quiet id">${one.type === "uploadedVod" ? strings.wasUploaded : one.streamName || one.streamId}</small></td>
    <td data-label=${strings.date}>${moment(one.creationDate)}</td>
    <td class="number" data-label=${strings.duration}>${one.duration >= 0 ? span(one.duration) : "–"}</td>
    <td class="number" data-label=${strings.size}>${bytes(one.fileSize)}</td>
    <td class="end many"><span class="nowrap">
      <a class="button small" href=${file} download=${one.vodName} aria-label=${strings.downloadOne(one.vodName)}>${strings.download}</a>${" "}
      <${Copy} text=${file} label=${one.vodName} />${" "}
      <button type="button" class="small writes" aria-label=${strings.removeOne(one.vodName)} onClick=${onRemove}>${strings.remove}</button>
    </span></td>
  </tr>`;
}

export default function Recordings({ args: [app] }) {
  const [query, setQuery] = useState({ offset: 0, search: "", sort: "date" });
  const keys = [app, query.offset, query.search, query.sort];
  const [page, again] = usePolled((signal) => vods(app, { ...query, size: SIZE }, signal), 5000, keys);
  const { application } = useLive(`/live/${encodeURIComponent(app)}`);
  const running = application?.recordings.length;
  // For this answer the server examines all files of the application, so it is requested only when a recording has ended.
  const [info] = usePolled((signal) => call("GET", "/applications-info", undefined, { signal }), 0, [app, running, page?.count]);
  const stored = info?.find((one) => one.name === app);
  const [playing, setPlaying] = useState(null);
  const [removing, setRemoving] = useState(null);
  const [chosen, setChosen] = useState(new Set());
  useEffect(() => { document.title = `${strings.recordings} · ${app} · ${strings.product}`; }, [app]);
  const change = (part) => {
    setQuery({ ...query, offset: 0, ...part });
    setChosen(new Set());
  };
  const toggle = (id) => {
    const next = new Set(chosen);
    if (!next.delete(id)) next.add(id);
    setChosen(next);
  };
  const list = page?.list ?? [];
  const all = list.length > 0 && list.every((one) => chosen.has(one.vodId));
  const remove = async () => {
    await attempt(() => doApp(app, "DELETE", `/vods?ids=${removing.map(encodeURIComponent).join(",")}`));
    setChosen(new Set());
    again();
  };
  return html`
    <p class="crumbs"><a href=${`#/app/${encodeURIComponent(app)}`}>${app}</a></p>
    <header class="head">
      <h1>${strings.recordings}</h1>
      ${stored && html`<p class="quiet">${strings.sumOfRecordings(stored.vodCount, bytes(Math.max(0, stored.storage)))}</p>`}
      <div class="actions writes"><${Upload} app=${app} onDone=${again} /></div>
    </header>
    <${Running} app=${app} list=${application?.recordings} />
    <div class="tools">
      <input type="search" placeholder=${strings.search} aria-label=${strings.search} onInput=${(event) => change({ search: event.target.value.trim() })} />
      <label>${strings.sortBy} <select value=${query.sort} onChange=${(event) => change({ sort: event.target.value })}>
        ${["date", "name"].map((key) => html`<option value=${key}>${strings.sorts[key]}</option>`)}
      </select></label>
      ${chosen.size > 0 && html`<button type="button" class="danger writes" onClick=${() => setRemoving([...chosen])}>${strings.removeMany(chosen.size)}</button>`}
    </div>
    ${page && list.length === 0 && (query.search
      ? html`<p class="quiet">${strings.nothingFound}</p>`
      : html`<section class="empty"><h2>${strings.noRecordings}</h2><p>${strings.noRecordingsText}</p></section>`)}
    ${list.length > 0 && html`<table>
      <thead><tr>
        <th class="tick writes"><input type="checkbox" checked=${all} aria-label=${strings.selectAll}
          onChange=${() => setChosen(new Set(all ? [] : list.map((one) => one.vodId)))} /></th>
        <th>${strings.name}</th><th>${strings.date}</th><th class="number">${strings.duration}</th><th class="number">${strings.size}</th><th></th>
      </tr></thead>
      <tbody>${list.map((one) => html`<${Row} key=${one.vodId} app=${app} one=${one} selected=${chosen.has(one.vodId)}
        onSelect=${() => toggle(one.vodId)} onPlay=${() => setPlaying(one)} onRemove=${() => setRemoving([one.vodId])} />`)}</tbody>
    </table>`}
    ${page && page.count > SIZE && html`<nav class="pages" aria-label=${strings.recordings}>
      <button type="button" disabled=${query.offset === 0} onClick=${() => change({ offset: Math.max(0, query.offset - SIZE) })}>${strings.newer}</button>
      <span>${strings.range(query.offset + 1, query.offset + list.length, page.count)}</span>
      <button type="button" disabled=${query.offset + SIZE >= page.count} onClick=${() => change({ offset: query.offset + SIZE })}>${strings.older}</button>
    </nav>`}
    ${playing && html`<${Player} app=${app} one=${playing} onClose=${() => setPlaying(null)} />`}
    ${removing && html`<${Confirm} title=${strings.removeMany(removing.length)} text=${strings.removeRecordings(removing.length)}
      act=${remove} onClose=${() => setRemoving(null)} />`}
  `;
}

/**
 * The recording switch on a broadcast's page. An application may record all of its streams, so the switch shows the running
 * recordings; for a broadcast that is not live, it shows the setting of the broadcast.
 */
export function Recording({ app, one, running }) {
  const types = running.length > 0 ? running.map(({ container }) => container) : one.mp4Enabled > 0 ? ["mp4"] : one.webMEnabled > 0 ? ["webm"] : [];
  const on = types.length > 0;
  const turn = () => attempt(async () => {
    for (const type of on ? types : ["mp4"]) {
      await doApp(app, "PUT", `/broadcasts/${encodeURIComponent(one.streamId)}/recording/${!on}?recordType=${type}`);
    }
  });
  return html`<button type="button" class="writes" aria-pressed=${on} onClick=${turn}><${Icon} name=${on ? "stop" : "record"} />${on ? strings.stopRecording : strings.startRecording}</button>`;
}

/** The recordings of the application that are running now. */
function Running({ app, list }) {
  if (!list?.length) return null;
  const stop = ({ streamId, container }) =>
    attempt(() => doApp(app, "PUT", `/broadcasts/${encodeURIComponent(streamId)}/recording/false?recordType=${container}`));
  return html`<section class="card running"><h2>${strings.recordingsRunning} <span class="quiet">(${list.length})</span></h2>
    <ul class="list">${list.map((one) => html`<li key=${`${one.streamId}.${one.container}`}>
      <span class="badge" data-status="recording">${strings.isRecorded}</span>
      <div><a href=${`#/broadcast/${encodeURIComponent(app)}/${encodeURIComponent(one.streamId)}`}>${one.streamId}</a>
        <small class="quiet">${one.container} · ${strings.liveFor(span(Date.now() - one.startTime))}</small></div>
      <button type="button" class="small writes" aria-label=${strings.stopRecordingOf(one.streamId)} onClick=${() => stop(one)}><${Icon} name="stop" />${strings.stop}</button>
    </li>`)}</ul>
  </section>`;
}
