// The page of a broadcast: its picture, its source and targets, and the rights of its viewers.

import { HERE, Refusal, call, callApp, doApp } from "./panel-api.js";
import { Icon } from "./panel-icons.js";
import { Badge, Confirm, Copy, Field, Spark, Thumb, attempt, bits, codecsOf, html, isLive, moment, span, useEffect, useLive, usePolled, useRate, useState, useTrail, valuesOf, viewersOf } from "./panel-kit.js";
import { Recording } from "./panel-recordings.js";
import { strings } from "./panel-strings.js";
import { Viewers } from "./panel-viewers.js";

const TOKENS_SHOWN = 50;
const SUBSCRIBERS_SHOWN = 250;
const BLOCK_SECONDS = 3600;

const pathOf = (id) => `/broadcasts/${encodeURIComponent(id)}`;

/** Addresses by protocol, with the host of this page. */
function addresses(app, id, ports) {
  const host = location.hostname;
  const at = (scheme, port, usual) => `${scheme}://${host}${port === usual ? "" : `:${port}`}`;
  const here = `${HERE}${app}`;
  const name = encodeURIComponent(id);
  return {
    publish: [
      ["RTMP", `${at("rtmp", ports.rtmp ?? 1935, 1935)}/${app}/${name}`],
      ["SRT", `${at("srt", ports.srt ?? 4200, 0)}?streamid=${app}/${name}`],
      ["RTSP", `${at("rtsp", ports.rtsp ?? 5554, 554)}/${app}/${name}`],
      ["WHIP", `${here}/whip/${name}`],
      [strings.browser, `${here}/index.html?id=${name}`],
    ],
    play: [
      [strings.browser, `${here}/play.html?id=${name}`],
      ["WHEP", `${here}/whep/${name}`],
      ["HLS", `${here}/streams/${name}.m3u8`],
      ["HTTP-FLV", `${here}/${name}.flv`],
      ["RTMP", `${at("rtmp", ports.rtmp ?? 1935, 1935)}/${app}/${name}`],
      ["SRT", `${at("srt", ports.srt ?? 4200, 0)}?streamid=${encodeURIComponent(`#!::r=${app}/${id},m=request`)}`],
      ["RTSP", `${at("rtsp", ports.rtsp ?? 5554, 554)}/${app}/${name}`],
      [strings.embed, `<iframe src="${here}/play.html?id=${name}" allow="autoplay; fullscreen" width="640" height="360" title="${name}"></iframe>`],
    ],
  };
}

function Addresses({ title, list }) {
  const [shown, setShown] = useState(null);
  const show = async (name, url) => {
    const { default: QrDialog } = await import("./panel-qr.js");
    setShown({ QrDialog, name, url });
  };
  const isPage = (name) => name === strings.browser;
  return html`<section class="card"><h2>${title}</h2>
    <dl class="addresses">${list.map(([name, url]) => html`<div key=${name}>
      <dt>${name}</dt><dd>
        ${isPage(name) ? html`<a href=${url} target="_blank" rel="noopener"><code>${url}</code></a>` : html`<code>${url}</code>`}
        <span class="nowrap">
          ${name !== strings.embed && html`<button type="button" class="small" aria-label=${strings.qrOf(name)} onClick=${() => show(name, url)}>QR</button>${" "}`}
          <${Copy} text=${url} label=${name} />
        </span>
      </dd>
    </div>`)}</dl>
    ${shown && html`<${shown.QrDialog} name=${shown.name} url=${shown.url} onClose=${() => setShown(null)} />`}
  </section>`;
}

function Preview({ app, one, watch }) {
  const [plays, setPlays] = useState(watch);
  const live = one.status === "broadcasting";
  return html`<section class="card preview"><h2>${strings.preview}</h2>
    ${live && plays
      ? html`<iframe title=${strings.preview} allow="autoplay" src=${`${HERE}${encodeURIComponent(app)}/play.html?id=${encodeURIComponent(one.streamId)}&mute=true&autoplay=true`}></iframe>
          <button type="button" onClick=${() => setPlays(false)}>${strings.stopPreview}</button>`
      : html`<div class="dark"><${Thumb} app=${app} id=${one.streamId} live=${live} />${live
          ? html`<button type="button" class="main" onClick=${() => setPlays(true)}><${Icon} name="play" />${strings.startPreview}</button>`
          : html`<p>${strings.notLive}</p>`}</div>`}
  </section>`;
}

function Graph({ label, value, trail, top }) {
  return html`<div><p class="value">${value}</p><${Spark} values=${trail} top=${top} label=${label} /><p class="quiet">${label}</p></div>`;
}

/** A publisher: its protocol, program and address. */
const described = (one) => [one.publishType, one.userAgent !== "N/A" && one.userAgent, one.remoteIp].filter(Boolean).join(" · ");

/** The tracks of the publisher, with their rates over the last seconds. */
function Figures({ app, one, source }) {
  const live = isLive(one);
  // Figures of the last hour, one a minute.
  const [hour] = usePolled((signal) => callApp(app, "GET", `${pathOf(one.streamId)}/metrics-history`, undefined, { signal }).catch(() => null), 0, [app, one.streamId]);
  const bitrate = useRate(source, (source?.receivedBytes ?? 0) * 8);
  const frames = useRate(source, source?.pictures ?? 0);
  const lost = useRate(source, source?.packetsLost ?? 0);
  const packets = useRate(source, source?.packets ?? 0);
  const loss = packets > 0 ? (lost / packets) * 100 : packets;
  const bitrates = useTrail(source, bitrate, hour?.bitrate);
  const rates = useTrail(source, frames);
  const losses = useTrail(source, loss, hour?.packetLostRatio);
  const trips = useTrail(source, source?.rttMs);
  const viewers = useTrail(one, viewersOf(one), hour?.viewers);
  const rows = [
    [strings.publisher, described(one) || "–"],
    ...(live && source?.standby ? [[strings.standby, [described(source.standby), source.standby.sends ? strings.standbyReady : strings.standbySilent].join(" · ")]] : []),
    [strings.codecs, live && source ? codecsOf(source) || "–" : "–"],
    [strings.since, one.startTime && live ? `${moment(one.startTime)} (${span(Date.now() - one.startTime)})` : "–"],
    [strings.resolution, live && one.width ? `${one.width} × ${one.height}` : "–"],
    ...(live && Object.keys(source?.clockFaults ?? {}).length ? [[strings.clockFaults, Object.entries(source.clockFaults).map(([kind, count]) => `${strings.clockFault[kind] ?? kind}: ${count}`).join(", ")]] : []),
    ...(live && source?.tracksLeftOut ? [[strings.soundLeftOut, strings.tooManyTranscoded]] : []),
    [strings.speed, live && one.speed ? `${one.speed.toFixed(2)} ×` : "–"],
  ];
  const byProtocol = [[strings.connected, one.rtmpViewerCount], ["WebRTC", one.webRTCViewerCount], ["HLS", one.hlsViewerCount], ["DASH", one.dashViewerCount]];
  const shown = (value) => (live && source ? value : "–");
  return html`<section class="card"><h2>${strings.status}</h2>
    <div class="pair">
      <${Graph} label=${strings.viewers} value=${live ? viewersOf(one) : "–"} trail=${viewers} top=${4} />
      <${Graph} label=${strings.bitrate} value=${shown(bits(bitrate))} trail=${bitrates} />
      <${Graph} label=${strings.frameRate} value=${shown(frames === null ? "–" : strings.perSecond(Math.round(frames)))} trail=${rates} top=${30} />
      ${source?.packets > 0 && html`<${Graph} label=${strings.loss} value=${shown(`${(loss ?? 0).toFixed(1)} %`)} trail=${losses} top=${5} />`}
      ${source?.rttMs > 0 && html`<${Graph} label=${strings.roundTrip} value=${shown(`${source.rttMs} ms`)} trail=${trips} top=${100} />`}
    </div>
    <dl class="rows">${rows.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}
      ${live && byProtocol.filter(([, count]) => count > 0)
        .map(([name, count]) => html`<div key=${name}><dt>${strings.viewersBy(name)}</dt><dd>${count}</dd></div>`)}
    </dl>
  </section>`;
}

/** Results of the attempts to reach an endpoint, the newest first. */
function History({ list }) {
  const last = list.at(-1);
  if (!last) return null;
  const line = ({ at, status, reason, times }) =>
    [moment(at), strings.statuses[status] ?? status, reason, times > 1 && strings.times(times)].filter(Boolean).join(" · ");
  return html`<details class="history"><summary class="quiet">${last.reason ?? strings.history}${last.times > 1 && ` (${strings.times(last.times)})`}</summary>
    <ul>${[...list].reverse().map((one, n) => html`<li key=${n}>${line(one)}</li>`)}</ul>
  </details>`;
}

function Endpoints({ app, one, histories }) {
  const list = one.endPointList ?? [];
  const [removing, setRemoving] = useState(null);
  const add = async (event) => {
    event.preventDefault();
    const form = event.target;
    const { url } = valuesOf(form);
    const work = () => doApp(app, "POST", `${pathOf(one.streamId)}/endpoint`, { endpointUrl: url.trim() });
    if (await attempt(work)) form.reset();
  };
  const remove = async () => {
    const id = encodeURIComponent(removing.endpointServiceId);
    await attempt(() => doApp(app, "DELETE", `${pathOf(one.streamId)}/endpoint?endpointServiceId=${id}`));
  };
  return html`<section class="card" id="endpoints"><h2>${strings.endpoints}</h2>
    <p class="quiet">${strings.endpointsText}</p>
    ${list.length === 0 && html`<p>${strings.noEndpoints}</p>`}
    <ul class="list">${list.map((endpoint, n) => html`<li key=${`${endpoint.endpointServiceId}-${n}`}>
      <div><code>${endpoint.endpointUrl}</code>
        <${History} list=${histories?.find((other) => other.endpointUrl === endpoint.endpointUrl)?.history ?? []} />
        ${endpoint.leftOut?.length > 0 && html`<small class="quiet">${strings.leftOut(endpoint.leftOut.join(", "))}</small>`}</div>
      <${Badge} status=${endpoint.status} />
      <button type="button" class="small writes" aria-label=${strings.removeEndpoint(endpoint.endpointUrl)} onClick=${() => setRemoving(endpoint)}>${strings.remove}</button>
    </li>`)}</ul>
    <form class="inline writes" onSubmit=${add}>
      <input name="url" required aria-label=${strings.endpointUrl} placeholder="rtmp://live.example/app/key" autocomplete="off" spellcheck=${false} />
      <button class="main">${strings.addEndpoint}</button>
    </form>
    ${removing && html`<${Confirm} title=${strings.remove} text=${strings.removeEndpoint(removing.endpointUrl)} act=${remove} onClose=${() => setRemoving(null)} />`}
  </section>`;
}

function Details({ app, one }) {
  const save = async (event) => {
    event.preventDefault();
    const form = valuesOf(event.target);
    const body = { name: form.name, description: form.description };
    if (form.url !== undefined) body.streamUrl = form.url.trim();
    if (form.items !== undefined) {
      body.playListItemList = form.items.split("\n").map((url) => url.trim()).filter(Boolean)
        .map((streamUrl) => one.playListItemList?.find((item) => item.streamUrl === streamUrl) ?? { streamUrl });
      body.playlistLoopEnabled = form.loop === "on";
    }
    if (one.type !== "liveStream") body.autoStartStopEnabled = form.demand === "on";
    await attempt(() => doApp(app, "PUT", pathOf(one.streamId), body), strings.saved);
  };
  return html`<section class="card writes"><h2>${strings.edit}</h2>
    <form onSubmit=${save}>
      <${Field} label=${strings.name}><input name="name" defaultValue=${one.name ?? ""} autocomplete="off" /><//>
      <${Field} label=${strings.description}><textarea name="description" rows="2" defaultValue=${one.description ?? ""}></textarea><//>
      ${one.type !== "liveStream" && one.type !== "playlist" && html`<${Field} label=${strings.sourceUrl}>
        <input name="url" defaultValue=${one.streamUrl ?? ""} autocomplete="off" spellcheck=${false} /><//>`}
      ${one.type === "playlist" && html`<${Field} label=${strings.items}>
        <textarea name="items" rows="4" spellcheck=${false} defaultValue=${(one.playListItemList ?? []).map((item) => item.streamUrl).join("\n")}></textarea><//>
        <label class="check"><input type="checkbox" name="loop" defaultChecked=${one.playlistLoopEnabled} /> ${strings.loop}</label>`}
      ${one.type !== "liveStream" && html`<label class="check"><input type="checkbox" name="demand" defaultChecked=${one.autoStartStopEnabled} /> ${strings.onDemand}</label>`}
      <div class="actions"><button class="main">${strings.save}</button></div>
    </form>
  </section>`;
}

function Tokens({ app, id }) {
  const [list, again] = usePolled((signal) => callApp(app, "GET", `${pathOf(id)}/tokens/list/0/${TOKENS_SHOWN}`, undefined, { signal }), 0, [app, id]);
  const add = async (event) => {
    event.preventDefault();
    const { kind, until } = valuesOf(event.target);
    const expires = Math.floor(new Date(until).getTime() / 1000);
    await attempt(() => callApp(app, "GET", `${pathOf(id)}/token?type=${kind}&expireDate=${expires}`));
    again();
  };
  const tomorrow = new Date(Date.now() + 86_400_000 - new Date().getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
  return html`<section class="card"><h2>${strings.tokens}</h2>
    <p class="quiet">${strings.tokensText}</p>
    ${list?.length === 0 && html`<p>${strings.noTokens}</p>`}
    <ul class="list">${(list ?? []).map((token) => html`<li key=${token.tokenId}>
      <div><code>${token.tokenId}</code><small class="quiet">${strings.tokenKinds[token.type]} · ${moment(token.expireDate * 1000)}</small></div>
      <${Copy} text=${token.tokenId} label=${strings.tokens} />
    </li>`)}</ul>
    <form class="inline writes" onSubmit=${add}>
      <select name="kind" aria-label=${strings.tokenKind}>${Object.entries(strings.tokenKinds).map(([key, text]) => html`<option value=${key}>${text}</option>`)}</select>
      <input name="until" type="datetime-local" required defaultValue=${tomorrow} aria-label=${strings.expires} />
      <button>${strings.addToken}</button>
    </form>
  </section>`;
}

/** Subscribers, who may watch or publish under a name; each can be blocked for a while. */
function Subscribers({ app, id }) {
  const path = `${pathOf(id)}/subscribers`;
  const [list, again] = usePolled((signal) => callApp(app, "GET", `${path}/list/0/${SUBSCRIBERS_SHOWN}`, undefined, { signal }), 0, [app, id]);
  const run = async (work) => {
    const done = await attempt(work);
    again();
    return done;
  };
  const add = async (event) => {
    event.preventDefault();
    const form = event.target;
    const { subscriber, kind } = valuesOf(form);
    const body = { subscriberId: subscriber.trim(), type: kind };
    if (await run(() => doApp(app, "POST", path, body))) form.reset();
  };
  const of = (one) => `${path}/${encodeURIComponent(one.subscriberId)}`;
  const isBlocked = (one) => one.blockedUntilUnitTimeStampMs > Date.now();
  return html`<section class="card" id="subscribers"><h2>${strings.subscribers}</h2>
    <p class="quiet">${strings.subscribersText}</p>
    ${list?.length === 0 && html`<p>${strings.noSubscribers}</p>`}
    <ul class="list">${(list ?? []).map((one) => html`<li key=${one.subscriberId}>
      <div>${one.subscriberId} <small class="quiet">${[
        strings.tokenKinds[one.type], one.connected && strings.connected, isBlocked(one) && strings.blockedUntil(moment(one.blockedUntilUnitTimeStampMs)),
      ].filter(Boolean).join(" · ")}</small></div>
      ${!isBlocked(one) && html`<button type="button" class="small writes" aria-label=${strings.blockOne(one.subscriberId)}
        onClick=${() => run(() => doApp(app, "PUT", `${of(one)}/block/${BLOCK_SECONDS}/publish_play`))}>${strings.block}</button>`}
      <button type="button" class="small writes" aria-label=${strings.removeSubscriber(one.subscriberId)}
        onClick=${() => run(() => doApp(app, "DELETE", of(one)))}>${strings.remove}</button>
    </li>`)}</ul>
    <form class="inline writes" onSubmit=${add}>
      <input name="subscriber" required aria-label=${strings.subscriberId} placeholder=${strings.subscriberId} autocomplete="off" spellcheck=${false} />
      <select name="kind" aria-label=${strings.tokenKind}>${Object.entries(strings.tokenKinds).map(([key, text]) => html`<option value=${key}>${text}</option>`)}</select>
      <button>${strings.addSubscriber}</button>
    </form>
  </section>`;
}

export default function Broadcast({ args: [app, id, way] }) {
  const { broadcasts, source, endpoints, recordings, error } = useLive(`/live/${encodeURIComponent(app)}/${encodeURIComponent(id)}`);
  const one = broadcasts[id];
  const [ports, setPorts] = useState({});
  const [removing, setRemoving] = useState(false);
  const name = one?.name || id;
  useEffect(() => { document.title = `${name} · ${strings.product}`; }, [name]);
  useEffect(() => {
    // A user of one application cannot read the server's ports; the default ports are shown then.
    call("GET", "/live").then((lines) => setPorts(JSON.parse(lines.split("\n")[0]).server.ports), () => null);
  }, []);
  if (error instanceof Refusal && error.status === 404) return html`<h1>${id}</h1><p>${strings.notFound}</p>`;
  if (!one) return html`<h1>${id}</h1>`;
  const run = (what) => attempt(() => doApp(app, "POST", `${pathOf(id)}/${what}`));
  const isSource = one.type !== "liveStream";
  const ways = addresses(app, id, ports);
  const line = `ffmpeg -re -i file.mp4 -c copy -f flv ${ways.publish[0][1]}`;
  const server = ways.publish[0][1].slice(0, ways.publish[0][1].lastIndexOf("/"));
  return html`
    <p class="crumbs"><a href=${`#/app/${encodeURIComponent(app)}`}>${app}</a></p>
    <header class="head">
      <h1>${name} <${Badge} status=${one.status} />${recordings?.length > 0 && html` <span class="badge" data-status="recording">${strings.isRecorded}</span>`}</h1>
      <div class="actions">
        ${isSource && !isLive(one) && html`<button type="button" class="main writes" onClick=${() => run("start")}><${Icon} name="play" />${strings.start}</button>`}
        ${one.type === "playlist" && isLive(one) && html`<button type="button" class="writes" onClick=${() => attempt(() => doApp(app, "POST", `/broadcasts/playlists/${encodeURIComponent(id)}/next`))}>${strings.nextItem}</button>`}
        ${isLive(one) && html`<button type="button" class="writes" onClick=${() => run("stop")}><${Icon} name="stop" />${strings.stop}</button>`}
        <${Recording} app=${app} one=${one} running=${recordings ?? []} />
        <button type="button" class="danger writes" onClick=${() => setRemoving(true)}><${Icon} name="remove" />${strings.remove}</button>
      </div>
    </header>
    <div class="columns">
      <div>
        <${Preview} app=${app} one=${one} watch=${way === "watch"} />
        <${Figures} app=${app} one=${one} source=${source} />
        <${Viewers} app=${app} one=${one} />
        <${Details} key=${id} app=${app} one=${one} />
      </div>
      <div>
        <${Endpoints} app=${app} one=${one} histories=${endpoints} />
        ${!isSource && html`<${Addresses} title=${strings.publishTo} list=${ways.publish} />
          <section class="card"><h2>${strings.obs}</h2><p class="quiet">${strings.obsHint}</p>
            <dl class="addresses">
              <div><dt>Server</dt><dd><code>${server}</code><${Copy} text=${server} label="Server" /></dd></div>
              <div><dt>Stream Key</dt><dd><code>${id}</code><${Copy} text=${id} label="Stream Key" /></dd></div>
              <div><dt>${strings.ffmpeg}</dt><dd><code>${line}</code><${Copy} text=${line} label=${strings.ffmpeg} /></dd></div>
            </dl></section>`}
        <${Addresses} title=${strings.playFrom} list=${ways.play} />
        <${Tokens} app=${app} id=${id} />
        <${Subscribers} app=${app} id=${id} />
      </div>
    </div>
    ${removing && html`<${Confirm} title=${strings.removeBroadcast} text=${strings.removeBroadcastText(name)} onClose=${() => setRemoving(false)}
      act=${async () => { if (await attempt(() => doApp(app, "DELETE", pathOf(id)))) location.hash = `#/app/${encodeURIComponent(app)}`; }} />`}
  `;
}
