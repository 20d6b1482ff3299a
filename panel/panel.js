// The panel's frame: login, navigation, and the current page. Addresses are `#/page/…`.

import { render } from "./preact.js";
import { call, isFirstLogin, isLoggedIn, noteRoles, onConnection, roleIn, setLogin } from "./panel-api.js";
import { Toasts, html, useEffect, useRef, useState } from "./panel-kit.js";
import { Icon, Mark } from "./panel-icons.js";
import { FirstUser, Login, LoginDialog } from "./panel-login.js";
import { strings } from "./panel-strings.js";
import { TestBar } from "./panel-test.js";

/** Modules of the pages, each loaded when its page is first opened. */
const PAGES = {
  overview: () => import("./panel-overview.js"),
  app: () => import("./panel-app.js"),
  broadcast: () => import("./panel-broadcast.js"),
  recordings: () => import("./panel-recordings.js"),
  settings: () => import("./panel-settings.js"),
  server: () => import("./panel-settings.js"),
  users: () => import("./panel-users.js"),
  log: () => import("./panel-log.js"),
};

const place = () => location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);

function useHash() {
  const [parts, setParts] = useState(place());
  useEffect(() => {
    const moved = () => setParts(place());
    addEventListener("hashchange", moved);
    // The address may have changed between the first drawing and now.
    moved();
    return () => removeEventListener("hashchange", moved);
  }, []);
  return parts;
}

function useTheme() {
  const [theme, setTheme] = useState(localStorage.getItem("theme") ?? "auto");
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("theme", theme);
  }, [theme]);
  return [theme, setTheme];
}

function Page({ name, args }) {
  const [loaded, setLoaded] = useState({ name: null, View: null });
  const key = PAGES[name] ? name : "overview";
  useEffect(() => {
    PAGES[key]().then((module) => setLoaded({ name: key, View: module.default }));
  }, [key]);
  if (loaded.name !== key) return null;
  return html`<${loaded.View} key=${args.join("/")} args=${args} />`;
}

function Link({ to, icon, here, children }) {
  const current = here ? "page" : undefined;
  return html`<a href=${`#/${to}`} aria-current=${current}><${Icon} name=${icon} /><span>${children}</span></a>`;
}

const Brand = () => html`<a class="brand" href="#/overview"><${Mark} />${strings.product}</a>`;

/** Links to the pages of the current application. */
function OfApp({ app, at }) {
  const pages = [["app", strings.broadcasts], ["recordings", strings.recordings], ["settings", strings.settings]];
  return html`<ul class="sub">${pages.map(([page, text]) => html`<li key=${page}>
    <a href=${`#/${page}/${encodeURIComponent(app)}`} aria-current=${at === page ? "page" : undefined}>${text}</a>
  </li>`)}</ul>`;
}

function Shell({ onLogout }) {
  const [name, ...args] = useHash();
  const [apps, setApps] = useState([]);
  const [theme, setTheme] = useTheme();
  const [isOpen, setOpen] = useState(false);
  const main = useRef(null);
  const at = name || "overview";
  useEffect(() => {
    call("GET", "/applications").then((answer) => setApps(answer.applications.sort()));
    setOpen(false);
  }, [at, args[0]]);
  const logOut = async () => {
    await call("DELETE", "/users/logout").catch(() => null);
    noteRoles("");
    onLogout();
  };
  const app = ["app", "broadcast", "recordings", "settings"].includes(at) ? args[0] : undefined;
  const isIn = (name) => app === name;
  return html`<div class="shell">
    <a class="skip" href="#content" onClick=${(event) => { event.preventDefault(); main.current.focus(); }}>${strings.skip}</a>
    <header class="bar">
      <button type="button" class="menu" aria-expanded=${isOpen} aria-controls="side" onClick=${() => setOpen(!isOpen)}><${Icon} name="menu" />${strings.menu}</button>
      <${Brand} />
    </header>
    <nav id="side" class=${isOpen ? "side open" : "side"} aria-label=${strings.menu}>
      <${Brand} />
      <${Link} to="overview" icon="overview" here=${at === "overview"}>${strings.overview}<//>
      <h2>${strings.applications}</h2>
      ${apps.map((name) => html`<${Link} key=${name} to=${`app/${encodeURIComponent(name)}`} icon="app" here=${isIn(name)}>${name}<//>
        ${isIn(name) && html`<${OfApp} key=${`${name}/`} app=${name} at=${at} />`}`)}
      <h2>${strings.server}</h2>
      <${Link} to="server" icon="settings" here=${at === "server"}>${strings.serverSettings}<//>
      <${Link} to="users" icon="users" here=${at === "users"}>${strings.users}<//>
      <${Link} to="log" icon="log" here=${at === "log"}>${strings.log}<//>
      <a href="reference.html"><${Icon} name="api" /><span>${strings.api}</span></a>
      <div class="foot">
        <label>${strings.theme}
          <select value=${theme} onChange=${(event) => setTheme(event.target.value)}>
            ${Object.entries(strings.themes).map(([key, text]) => html`<option value=${key}>${text}</option>`)}
          </select>
        </label>
        <button type="button" onClick=${logOut}><${Icon} name="logout" />${strings.logout}</button>
      </div>
    </nav>
    <main id="content" ref=${main} tabindex="-1" data-role=${roleIn(app)}><${Page} name=${at} args=${args} /><${TestBar} /></main>
  </div>`;
}

function Panel() {
  // State of the login: "unknown", "first" (no user exists), "out", "in".
  const [who, setWho] = useState("unknown");
  const [asked, setAsked] = useState(null);
  const [isOffline, setOffline] = useState(false);
  const look = async () => {
    if (await isLoggedIn()) setWho("in");
    else setWho((await isFirstLogin()) ? "first" : "out");
  };
  useEffect(() => {
    setLogin(() => new Promise((done) => setAsked({ done })));
    look();
    return onConnection(setOffline);
  }, []);
  const finish = () => {
    asked.done();
    setAsked(null);
  };
  return html`
    ${isOffline && html`<p class="offline" role="alert">${strings.offline}</p>`}
    ${who === "first" && html`<${FirstUser} onDone=${look} />`}
    ${who === "out" && html`<${Login} onDone=${look} />`}
    ${who === "in" && html`<${Shell} onLogout=${() => setWho("out")} />`}
    ${asked && who === "in" && html`<${LoginDialog} onDone=${finish} />`}
    <${Toasts} />
  `;
}

const root = document.getElementById("panel");
root.replaceChildren();
render(html`<${Panel} />`, root);

