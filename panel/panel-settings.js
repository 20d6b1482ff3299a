// The settings of an application, or of the server: all of them, found by name; what was changed is shown until it is saved.

import { call, doCall } from "/panel-api.js";
import { attempt, html, useEffect, useState } from "/panel-kit.js";
import { strings } from "/panel-strings.js";

/** The value of a field, of the type that the setting has. */
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

function Setting({ name, value, changed, onChange }) {
  const id = `setting-${name}`;
  const isSwitch = typeof value === "boolean";
  return html`<div class=${changed ? "setting changed" : "setting"}>
    <label for=${id}>${name}</label>
    ${isSwitch
      ? html`<input id=${id} type="checkbox" checked=${value} onChange=${(event) => onChange(event.target.checked)} />`
      : html`<input id=${id} type=${typeof value === "number" ? "number" : "text"} step="any" value=${shown(value)}
          autocomplete="off" spellcheck=${false} onChange=${(event) => onChange(typed(event.target.value, value))} />`}
  </div>`;
}

/** Without an application: the server's. */
export default function Settings({ args: [app] }) {
  const [stored, setStored] = useState(null);
  const [edited, setEdited] = useState({});
  const [search, setSearch] = useState("");
  const path = app ? `/applications/settings/${encodeURIComponent(app)}` : "/server-settings";
  const title = app ? strings.settings : strings.serverSettings;
  const load = () => call("GET", path).then((settings) => {
    setStored(settings);
    setEdited({});
  });
  useEffect(() => {
    document.title = [title, app, strings.product].filter(Boolean).join(" · ");
    load();
  }, [app]);
  if (!stored) return html`<h1>${title}</h1>`;
  const change = (name, value) => {
    const next = { ...edited, [name]: value };
    if (JSON.stringify(value) === JSON.stringify(stored[name])) delete next[name];
    setEdited(next);
  };
  const count = Object.keys(edited).length;
  const save = async (event) => {
    event.preventDefault();
    // All of them: those that are left out would return to their defaults.
    if (await attempt(() => doCall("POST", path, { ...stored, ...edited }), strings.saved)) await load();
  };
  const wanted = search.toLowerCase();
  const names = Object.keys(stored).filter((name) => name.toLowerCase().includes(wanted));
  return html`
    ${app && html`<p class="crumbs"><a href=${`#/app/${encodeURIComponent(app)}`}>${app}</a></p>`}
    <header class="head"><h1>${title}</h1></header>
    ${!app && html`<p class="quiet">${strings.serverSettingsText}</p>`}
    <div class="tools"><input type="search" placeholder=${strings.searchSettings} aria-label=${strings.searchSettings} onInput=${(event) => setSearch(event.target.value.trim())} /></div>
    <form class="settings" onSubmit=${save}>
      ${names.map((name) => html`<${Setting} key=${name} name=${name} value=${name in edited ? edited[name] : stored[name]}
        changed=${name in edited} onChange=${(value) => change(name, value)} />`)}
      ${names.length === 0 && html`<p class="quiet">${strings.noSettings}</p>`}
      ${count > 0 && html`<div class="savebar" role="status">
        <span>${strings.changed(count)}</span>
        <button type="button" onClick=${() => setEdited({})}>${strings.discard}</button>
        <button class="main">${strings.save}</button>
      </div>`}
    </form>`;
}
