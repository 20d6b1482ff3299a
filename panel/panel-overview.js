// The machine, and what the applications have live.

import { call, doCall } from "/panel-api.js";
import { Confirm, Dialog, Field, Spark, attempt, bytes, html, percent, span, useEffect, usePolled, useState, useTrail, valuesOf } from "/panel-kit.js";
import { strings } from "/panel-strings.js";

const EVERY_MS = 2000;

async function read() {
  const [machine, clients, apps] = await Promise.all([
    call("GET", "/system-resources"),
    call("GET", "/live-clients-size"),
    call("GET", "/applications-info"),
  ]);
  return { machine, clients, apps };
}

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

export default function Overview() {
  const [now, again] = usePolled(read, EVERY_MS, []);
  const [adding, setAdding] = useState(false);
  const [removing, setRemoving] = useState(null);
  useEffect(() => { document.title = `${strings.overview} · ${strings.product}`; }, []);
  const machine = now?.machine;
  const memory = machine?.systemMemoryInfo;
  // What the system could give: free memory alone says little.
  const used = memory ? memory.totalMemory - (memory.availableMemory || memory.freeMemory) : undefined;
  const cpu = useTrail(now, machine?.cpuUsage.systemCPULoad);
  const memoryTrail = useTrail(now, used);
  const streams = useTrail(now, machine?.totalLiveStreamSize);
  const connections = useTrail(now, now?.clients.totalConnectionSize);
  if (!now) return html`<h1>${strings.overview}</h1>`;
  const files = machine.fileSystemInfo;
  return html`
    <header class="head">
      <h1>${strings.overview}</h1>
      <p class="quiet">${machine.softwareVersion.versionName} · ${strings.uptime(span(machine["server-timing"]["up-time"]))}</p>
    </header>
    <div class="figures">
      <${Figure} title=${strings.liveStreams} value=${machine.totalLiveStreamSize} trail=${streams} top=${4} note=${" "} />
      <${Figure} title=${strings.connections} value=${now.clients.totalConnectionSize} trail=${connections} top=${4} note=${" "} />
      <${Figure} title=${strings.cpu} value=${percent(machine.cpuUsage.systemCPULoad)} trail=${cpu} top=${100}
        note=${strings.serverOnly(percent(machine.cpuUsage.processCPULoad))} />
      <${Figure} title=${strings.memory} value=${bytes(used)} trail=${memoryTrail} top=${memory.totalMemory}
        note=${`${strings.of(bytes(used), bytes(memory.totalMemory))}, ${strings.serverOnly(bytes(machine.jvmMemoryUsage.inUseMemory))}`} />
      <section class="figure">
        <h2>${strings.disk}</h2>
        <p class="value">${bytes(files.inUseSpace)}</p>
        <progress max=${files.totalSpace} value=${files.inUseSpace} aria-label=${strings.disk}></progress>
        <p class="quiet">${strings.of(bytes(files.inUseSpace), bytes(files.totalSpace))}</p>
      </section>
    </div>
    <header class="head">
      <h2>${strings.applications}</h2>
      <button type="button" onClick=${() => setAdding(true)}>${strings.addApplication}</button>
    </header>
    <table>
      <thead><tr><th>${strings.name}</th><th class="number">${strings.liveStreams}</th><th class="number">${strings.storage}</th><th></th></tr></thead>
      <tbody>
        ${now.apps.map((app) => html`<tr key=${app.name}>
          <td><a href=${`#/app/${encodeURIComponent(app.name)}`}>${app.name}</a></td>
          <td class="number" data-label=${strings.liveStreams}>${app.liveStreamCount}</td>
          <td class="number" data-label=${strings.storage}>${bytes(app.storage)}</td>
          <td class="end">
            <a class="button small" href=${`#/settings/${encodeURIComponent(app.name)}`}>${strings.settings}</a>
            <button type="button" class="small" onClick=${() => setRemoving(app.name)}>${strings.remove}</button>
          </td>
        </tr>`)}
      </tbody>
    </table>
    ${now.apps.length === 0 && html`<p class="quiet">${strings.noApplications}</p>`}
    ${adding && html`<${AddApplication} onClose=${() => setAdding(false)} onDone=${again} />`}
    ${removing && html`<${Confirm} title=${strings.removeApplication} text=${strings.removeApplicationText(removing)}
      onClose=${() => setRemoving(null)}
      act=${async () => { await attempt(() => doCall("DELETE", `/applications/${encodeURIComponent(removing)}?deleteDB=true`)); again(); }} />`}
  `;
}
