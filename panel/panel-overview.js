// Overview of the machine, and of the live streams of all applications.

import { call, doCall } from "./panel-api.js";
import { CertificateDate, Confirm, Dialog, Field, Spark, attempt, bytes, html, moment, percent, span, useEffect, useLive, usePolled, useState, useTrail, valuesOf } from "./panel-kit.js";
import { Icon } from "./panel-icons.js";
import { FirstSteps } from "./panel-test.js";
import { strings } from "./panel-strings.js";

function Figure({ title, value, note, trail, top }) {
  return html`<section class="figure">
    <h2>${title}</h2>
    <p class="value">${value}</p>
    <${Spark} values=${trail} top=${top} label=${title} />
    <p class="quiet">${note}</p>
  </section>`;
}

function AddApplication({ onClose, onDone }) {
  const add = async (event) => {
    event.preventDefault();
    const { name } = valuesOf(event.target);
    if (await attempt(() => doCall("POST", `/applications/${encodeURIComponent(name)}`))) {
      onDone();
      onClose();
    }
  };
  return html`<${Dialog} title=${strings.addApplication} onClose=${onClose}>
    <form onSubmit=${add}>
      <${Field} label=${strings.applicationName} hint=${strings.applicationRules}>
        <input name="name" required pattern="[A-Za-z0-9]+" autocomplete="off" autofocus />
      <//>
      <div class="actions">
        <button type="button" onClick=${onClose}>${strings.cancel}</button>
        <button class="main">${strings.addApplication}</button>
      </div>
    </form>
  <//>`;
}

/** Load of each worker. */
function Workers({ busy }) {
  return html`<section class="card workers"><h2>${strings.workers}</h2>
    <dl class="rows">${busy.map((permille, n) => html`<div key=${n}>
      <dt>${strings.worker(n + 1)}</dt>
      <dd><progress max="1000" value=${permille} aria-label=${strings.worker(n + 1)}></progress> ${percent(permille / 10)}</dd>
    </div>`)}</dl>
  </section>`;
}

/** The state of a node: the status whose colour its badge has, and its name. */
const nodeState = ({ status, draining }) => (status !== "alive" ? ["terminated_unexpectedly", "gone"] : draining ? ["preparing", "draining"] : ["broadcasting", "alive"]);

/** The nodes of the cluster; nothing if the server is not in one. A node that is gone can be removed from the list. */
function Nodes() {
  const [mode] = usePolled((signal) => call("GET", "/cluster-mode-status", undefined, { signal }), 0, []);
  const [nodes, again] = usePolled(async (signal) => (mode?.success ? call("GET", "/cluster/nodes/0/50", undefined, { signal }) : null), 3000, [mode]);
  if (!nodes) return null;
  const remove = async ({ id }) => {
    if (await attempt(() => doCall("DELETE", `/cluster/node/${encodeURIComponent(id)}`))) again();
  };
  return html`<header class="head below"><h2>${strings.cluster}</h2></header>
    <table>
      <thead><tr><th>${strings.node}</th><th>${strings.status}</th><th>${strings.region}</th><th class="number">${strings.cpu}</th><th class="number">${strings.memory}</th><th>${strings.lastHeard}</th><th></th></tr></thead>
      <tbody>${nodes.map((node) => {
        const [color, state] = nodeState(node);
        return html`<tr key=${node.id}>
          <td>${/^https?:/.test(node.address) ? html`<a href=${node.address}>${node.id}</a>` : node.id}</td>
          <td data-label=${strings.status}><span class="badge" data-status=${color}>${strings.nodeStates[state]}</span></td>
          <td data-label=${strings.region}>${node.region || "–"}</td>
          <td class="number" data-label=${strings.cpu}>${percent(parseInt(node.cpu, 10))}</td>
          <td class="number" data-label=${strings.memory}>${percent(parseInt(node.memory, 10))}</td>
          <td data-label=${strings.lastHeard}>${moment(node.lastUpdateTime)}</td>
          <td class="end">${state === "gone" && html`<button type="button" class="small manages" onClick=${() => remove(node)}>${strings.remove}</button>`}</td>
        </tr>`;
      })}</tbody>
    </table>`;
}

/** Viewers of all applications together, one value a minute. */
async function viewersOfApps(applications, signal) {
  const read = ({ name }) => call("GET", `/applications/${encodeURIComponent(name)}/metrics-history`, undefined, { signal }).catch(() => ({ viewers: [] }));
  const columns = (await Promise.all(applications.map(read))).map((one) => one.viewers);
  const length = Math.max(0, ...columns.map((column) => column.length));
  // All columns end with the same minute, but may begin with different ones.
  return Array.from({ length }, (_, n) => columns.reduce((sum, column) => sum + (column[column.length - length + n] ?? 0), 0));
}

export default function Overview() {
  const { server, applications } = useLive("/live");
  const [adding, setAdding] = useState(false);
  const [removing, setRemoving] = useState(null);
  // For this answer the server examines every file, so it is requested only once.
  const [stored] = usePolled((signal) => call("GET", "/applications-info", undefined, { signal }), 0, [applications?.length]);
  useEffect(() => { document.title = `${strings.overview} · ${strings.product}`; }, []);
  const memory = server?.memory;
  const used = memory ? memory.total - memory.available : 0;
  // Figures of the last hour, one a minute, so that the charts begin before the page was opened.
  const [hour] = usePolled((signal) => call("GET", "/system-resources/history", undefined, { signal }), 0, []);
  const [ofApps] = usePolled((signal) => viewersOfApps(applications ?? [], signal), 0, [Boolean(applications)]);
  const known = hour && memory;
  const cpu = useTrail(server, server?.systemCpuPercent, known ? hour.cpu : null);
  const memoryTrail = useTrail(server, used, known ? hour.mem.map((percent) => (percent * memory.total) / 100) : null);
  const streams = useTrail(server, server?.liveStreams, known ? hour.live : null);
  const viewers = useTrail(server, server?.viewers, applications && ofApps?.length ? ofApps : null);
  if (!server || !applications) return html`<h1>${strings.overview}</h1>`;
  const disk = { total: server.disk.total, used: server.disk.total - server.disk.free };
  const recordings = applications.reduce((sum, app) => sum + app.recordings, 0);
  const allStored = stored?.reduce((sum, one) => sum + Math.max(0, one.storage), 0);
  const storage = (name) => stored?.find((one) => one.name === name)?.storage ?? -1;
  return html`
    <header class="head">
      <h1>${strings.overview}</h1>
      <div class="facts">
        <p class="quiet">${strings.product} ${server.version} · ${strings.uptime(span(Date.now() - server.startTime))}</p>
        <${CertificateDate} at=${server.certificateExpires} />
      </div>
    </header>
    <div class="figures">
      <${Figure} title=${strings.liveStreams} value=${server.liveStreams} trail=${streams} top=${4}
        note=${strings.forwarded(server.pushes, server.pulls)} />
      <${Figure} title=${strings.viewers} value=${server.viewers} trail=${viewers} top=${4} note=${strings.recordingNow(recordings)} />
      <${Figure} title=${strings.cpu} value=${percent(server.systemCpuPercent)} trail=${cpu} top=${100}
        note=${strings.serverOnly(percent(server.processCpuPercent))} />
      <${Figure} title=${strings.memory} value=${bytes(used)} trail=${memoryTrail} top=${memory.total}
        note=${`${strings.of(bytes(used), bytes(memory.total))}, ${strings.serverOnly(bytes(memory.process))}`} />
      <section class="figure">
        <h2>${strings.disk}</h2>
        <p class="value">${bytes(disk.used)}</p>
        <progress max=${disk.total} value=${disk.used} aria-label=${strings.disk}></progress>
        <p class="quiet">${strings.of(bytes(disk.used), bytes(disk.total))}${allStored !== undefined && `, ${strings.ofApplications(bytes(allStored))}`}</p>
      </section>
    </div>
    ${applications.length > 0 && server.liveStreams === 0 && applications.every((app) => app.broadcasts === 0)
      && html`<${FirstSteps} app=${applications.find((app) => app.name === "live")?.name ?? applications[0].name} />`}
    <header class="head">
      <h2>${strings.applications}</h2>
      <button type="button" class="manages" onClick=${() => setAdding(true)}><${Icon} name="add" />${strings.addApplication}</button>
    </header>
    <table>
      <thead><tr><th>${strings.name}</th><th class="number">${strings.liveStreams}</th><th class="number">${strings.broadcasts}</th><th class="number">${strings.recordingsRunning}</th><th class="number">${strings.storage}</th><th></th></tr></thead>
      <tbody>
        ${applications.map((app) => html`<tr key=${app.name}>
          <td><a href=${`#/app/${encodeURIComponent(app.name)}`}>${app.name}</a></td>
          <td class="number" data-label=${strings.liveStreams}>${app.liveStreams}</td>
          <td class="number" data-label=${strings.broadcasts}>${app.broadcasts}</td>
          <td class="number" data-label=${strings.recordingsRunning}>${app.recordings}</td>
          <td class="number" data-label=${strings.storage}>${storage(app.name) < 0 ? "–" : bytes(storage(app.name))}</td>
          <td class="end">
            <a class="button small" href=${`#/settings/${encodeURIComponent(app.name)}`}>${strings.settings}</a>
            <button type="button" class="small manages" onClick=${() => setRemoving(app.name)}>${strings.remove}</button>
          </td>
        </tr>`)}
      </tbody>
    </table>
    ${applications.length === 0 && html`<p class="quiet">${strings.noApplications}</p>`}
    <${Nodes} />
    <${Workers} busy=${server.workersBusyPermille} />
    ${adding && html`<${AddApplication} onClose=${() => setAdding(false)} onDone=${() => null} />`}
    ${removing && html`<${Confirm} title=${strings.removeApplication} text=${strings.removeApplicationText(removing)}
      onClose=${() => setRemoving(null)}
      act=${async () => { await attempt(() => doCall("DELETE", `/applications/${encodeURIComponent(removing)}?deleteDB=true`)); }} />`}
  `;
}
