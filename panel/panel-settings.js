// The settings of an application or of the server, with a search in their names and texts. Unsaved changes are marked.

import { call, doCall, roleIn } from "./panel-api.js";
import { Icon } from "./panel-icons.js";
import { CertificateDate, OpenFile, attempt, html, save, toast, useEffect, useLive, useState } from "./panel-kit.js";
import { strings } from "./panel-strings.js";

/** The groups that contain any of these settings, in the order of their titles: `[name, settings]`. */
const grouped = (list) => Object.keys(strings.groups)
  .map((name) => [name, list.filter((about) => about.group === name)])
  .filter(([, settings]) => settings.length > 0);

/** Converts the text of a field to the type of the setting's old value. */
function typed(text, old) {
  if (typeof old === "number") return text.trim() === "" ? 0 : Number(text);
  if (old === null && text === "") return null;
  if (typeof old === "object" && old !== null) {
    try {
      return JSON.parse(text);
    } catch {
      return text;
    }
  }
  return text;
}

const shown = (value) => (value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value));

/** A setting. Without a `value` it cannot be changed. Typed input stays text; `old` gives its type. */
function Setting({ about, value, old, changed, isRead, onChange }) {
  const name = about.name ?? about.key;
  const id = `setting-${name}`;
  const fixed = isRead || about.fixed || value === undefined;
  const isSwitch = ["true", "false"].includes(about.default);
  const told = isSwitch && about.value !== null ? about.value === "true" : about.value ?? strings.hidden;
  const given = value === undefined ? told : value;
  const describes = `${id}-about`;
  const usual = isSwitch ? strings.switched[about.default] : about.default;
  const notes = [usual === "" ? strings.defaultEmpty : strings.defaultIs(usual)];
  if (about.fixed) notes.push(strings.fixedBy(strings.origins[about.origin]));
  else if (about.value !== null && about.value !== about.default) notes.push(strings.otherThanDefault);
  return html`<div class=${changed ? "setting changed" : "setting"}>
    <label for=${id}><span>${about.label}</span><code>${name}</code></label>
    ${typeof given === "boolean"
      ? html`<input id=${id} type="checkbox" checked=${given} disabled=${fixed} aria-describedby=${describes} onChange=${(event) => onChange(event.target.checked)} />`
      : html`<input id=${id} type=${typeof old === "number" ? "number" : "text"} step="any" value=${shown(given)} readonly=${fixed}
          aria-describedby=${describes} autocomplete="off" spellcheck=${false} onInput=${(event) => onChange(event.target.value)} />`}
    <p id=${describes} class="quiet">${[about.description, ...notes].filter(Boolean).join(" · ")}</p>
  </div>`;
}

/** A form for a new certificate, as the files that certificate authorities provide. */
function Certificate() {
  const { server } = useLive("/live");
  const send = async (event) => {
    event.preventDefault();
    const form = event.target;
    const domain = encodeURIComponent(form.domain.value.trim());
    const files = new FormData();
    for (const name of ["fullChainFile", "privateKeyFile", "chainFile"]) {
      // A single file may contain everything, so it also replaces the missing files.
      const [file] = form[name].files;
      files.append(name, file ?? form.fullChainFile.files[0]);
    }
    if (await attempt(() => doCall("POST", `/ssl-settings?type=CUSTOM_CERTIFICATE&domain=${domain}`, files), strings.certificateTaken)) form.reset();
  };
  return html`<section class="card certificate"><h2>${strings.certificate}</h2>
    <p class="quiet">${strings.certificateText}</p>
    <${CertificateDate} at=${server?.certificateExpires} />
    <form class="manages" onSubmit=${send}>
      <label class="field"><span>${strings.domain}</span><input name="domain" required autocomplete="off" placeholder="live.example" /></label>
      <label class="field"><span>${strings.fullChain}</span><input name="fullChainFile" type="file" required /></label>
      <label class="field"><span>${strings.privateKey}</span><input name="privateKeyFile" type="file" required /></label>
      <label class="field"><span>${strings.chain}</span><input name="chainFile" type="file" /></label>
      <div class="actions"><button>${strings.upload}</button></div>
    </form>
  </section>`;
}

/** The settings of an application, or without one, of the server. */
export default function Settings({ args: [app] }) {
  const [stored, setStored] = useState(null);
  const [keys, setKeys] = useState(null);
  const [edited, setEdited] = useState({});
  const [search, setSearch] = useState("");
  const path = app ? `/applications/settings/${encodeURIComponent(app)}` : "/server-settings";
  const title = app ? strings.settings : strings.serverSettings;
  const load = async () => {
    const [settings, about] = await Promise.all([call("GET", path), call("GET", `${path}/keys`)]);
    setStored(settings);
    setKeys(about);
    setEdited({});
  };
  useEffect(() => {
    document.title = [title, app, strings.product].filter(Boolean).join(" · ");
    load();
  }, [app]);
  if (!stored) return html`<h1>${title}</h1>`;
  const valueIn = (edited, name) => (typeof edited[name] === "string" ? typed(edited[name], stored[name]) : edited[name]);
  const change = (name, value) => {
    const next = { ...edited, [name]: value };
    if (JSON.stringify(valueIn(next, name)) === JSON.stringify(stored[name])) delete next[name];
    setEdited(next);
  };
  const count = Object.keys(edited).length;
  const store = async (event) => {
    event.preventDefault();
    // All settings are sent, because omitted ones would return to their defaults.
    if (await attempt(() => doCall("POST", path, { ...stored, ...Object.fromEntries(Object.keys(edited).map((name) => [name, valueIn(edited, name)])) }), strings.saved)) await load();
  };
  const wanted = search.toLowerCase();
  const fits = (one) => [one.key, one.name, one.description, one.label, strings.groups[one.group]].some((text) => text?.toLowerCase().includes(wanted));
  const list = keys.filter(fits);
  const valueOf = ({ name }) => (name === null ? undefined : name in edited ? edited[name] : stored[name]);
  const foreign = list.filter((about) => about.effect === "foreign");
  const groups = grouped(list.filter((about) => about.effect !== "foreign"));
  // Secrets are not in the file. On import, settings that the file omits stay unchanged.
  const changeable = keys.filter((about) => about.name !== null && !about.fixed && about.value !== null);
  const give = () => save(`${app ?? "server"}-settings.json`, `${JSON.stringify(Object.fromEntries(changeable.map(({ name }) => [name, stored[name]])), null, 2)}\n`);
  const take = (text) => attempt(() => {
    const given = JSON.parse(text);
    const next = { ...edited };
    for (const { name } of changeable) {
      if (name in given && JSON.stringify(given[name]) !== JSON.stringify(stored[name])) next[name] = given[name];
    }
    setEdited(next);
    toast(strings.importedSettings(Object.keys(next).length));
  });
  const setting = (about) => html`<${Setting} key=${about.key} about=${about} value=${valueOf(about)} old=${stored[about.name]}
    changed=${about.name in edited} isRead=${roleIn(app) !== "ADMIN"} onChange=${(value) => change(about.name, value)} />`;
  return html`
    ${app && html`<p class="crumbs"><a href=${`#/app/${encodeURIComponent(app)}`}>${app}</a></p>`}
    <header class="head"><h1>${title}</h1>
      <div class="actions"><span class="manages"><${OpenFile} label=${strings.importFile} icon="upload" onText=${take} /></span>
        <button type="button" onClick=${give}><${Icon} name="download" />${strings.exportFile}</button></div>
    </header>
    ${!app && html`<p class="quiet">${strings.serverSettingsText}</p>`}
    <div class="tools"><input type="search" placeholder=${strings.searchSettings} aria-label=${strings.searchSettings} onInput=${(event) => setSearch(event.target.value.trim())} /></div>
    ${groups.length > 1 && html`<nav class="jump" aria-label=${strings.settingGroups}>${groups.map(([name]) => html`<button type="button" class="link" key=${name}
      onClick=${() => document.getElementById(`group-${name}`).scrollIntoView({ block: "start" })}>${strings.groups[name]}</button>`)}</nav>`}
    <form class="settings" onSubmit=${store}>
      ${groups.map(([name, settings]) => html`<section key=${name} aria-labelledby=${`group-${name}`}>
        <h2 id=${`group-${name}`}>${strings.groups[name]}</h2>
        ${settings.map(setting)}
      </section>`)}
      ${foreign.length > 0 && html`<details class="foreign" open=${wanted !== ""}>
        <summary>${strings.foreignSettings} (${foreign.length})</summary>
        <p class="quiet">${strings.foreignSettingsText}</p>
        ${grouped(foreign).map(([name, settings]) => html`<h3 key=${name}>${strings.groups[name]}</h3>${settings.map(setting)}`)}
      </details>`}
      ${list.length === 0 && html`<p class="quiet">${strings.noSettings}</p>`}
      ${count > 0 && html`<div class="savebar" role="status">
        <span>${strings.changed(count)}</span>
        <button type="button" onClick=${() => setEdited({})}>${strings.discard}</button>
        <button class="main">${strings.save}</button>
      </div>`}
    </form>
    ${!app && html`<${Certificate} />`}`;
}
