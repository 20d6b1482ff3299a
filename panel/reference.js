// The viewer of /openapi.json. Calls that the user tries are sent with the panel's login.

import "./rapidoc.js";

/** Path of an operation of an application: `/{app}/rest/v2/…`. */
const OF_APP = /^\/([A-Za-z0-9]+)(\/rest\/v2\/.*)$/;
/** The document's security scheme with a cookie, which the browser sends by itself. */
const LOGIN = "session";

/** The URL of this page's folder. A proxy may serve it at any path. */
const HERE = new URL(".", import.meta.url).href;

const ATTRIBUTES = {
  // On a narrow screen, the whole document is one page, without a list of operations beside it.
  "render-style": matchMedia("(max-width: 768px)").matches ? "view" : "focused",
  "show-header": "false",
  "allow-authentication": "false",
  "allow-server-selection": "false",
  "allow-spec-url-load": "false",
  "allow-spec-file-load": "false",
  "show-method-in-nav-bar": "as-colored-text",
  "use-path-in-nav-bar": "true",
  "show-info": "true",
  "schema-style": "table",
  "fetch-credentials": "same-origin",
  "load-fonts": "false",
  "sort-tags": "true",
  "regular-font": "system-ui, sans-serif",
  "mono-font": "ui-monospace, monospace",
};
/** Colours of the viewer, each with the panel's variable for it. */
const COLORS = {
  "bg-color": "--ground",
  "text-color": "--text",
  "primary-color": "--accent",
  "nav-bg-color": "--surface",
  "nav-text-color": "--text",
  "nav-hover-bg-color": "--accent-ground",
  "nav-hover-text-color": "--accent",
  "nav-accent-color": "--accent",
  "nav-accent-text-color": "--on-accent",
};

const viewer = document.createElement("rapi-doc");

function set(attributes) {
  for (const [name, value] of Object.entries(attributes)) viewer.setAttribute(name, value);
}

const prefersDark = matchMedia("(prefers-color-scheme: dark)");

/** Applies the panel's theme: the one chosen there, or the system's preference. */
function paint() {
  const chosen = localStorage.getItem("theme") ?? "auto";
  document.documentElement.dataset.theme = chosen;
  const isDark = chosen === "dark" || (chosen !== "light" && prefersDark.matches);
  const style = getComputedStyle(document.documentElement);
  const values = Object.entries(COLORS).map(([name, variable]) => [name, style.getPropertyValue(variable).trim()]);
  set({ theme: isDark ? "dark" : "light", ...Object.fromEntries(values) });
}

viewer.addEventListener("before-try", ({ detail: { request } }) => {
  const url = new URL(request.url, location.href);
  const operation = OF_APP.exec(url.pathname);
  if (operation && operation[1] !== "rest") {
    // Calls go through the management API, where the login is valid; the application's own API checks the address or a token.
    const [, app, path] = operation;
    const query = url.search.replace("?", "&");
    request.url = `${HERE}rest/v2/request?_path=${encodeURIComponent(app + decodeURIComponent(path))}${query}`;
  } else {
    request.url = `${HERE}${url.pathname.slice(1)}${url.search}`;
  }
  // With a cookie, the server accepts a write only if its type shows that it is not a form of another page.
  const isForm = request.body instanceof FormData;
  if (request.method !== "GET" && !isForm) request.headers.set("Content-Type", "application/json");
});

/** Reads the document and keeps only the login as its security scheme, so that the viewer asks for no keys. */
async function read() {
  const answer = await fetch(`${HERE}openapi.json`);
  if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
  const api = await answer.json();
  for (const operation of Object.values(api.paths).flatMap(Object.values)) {
    if (operation.security) operation.security = [{ [LOGIN]: [] }];
  }
  api.components.securitySchemes = { [LOGIN]: api.components.securitySchemes[LOGIN] };
  api.info.description = "Calls are carried out, with the rights of your login to the panel. The document: [openapi.json](openapi.json).";
  return api;
}

/** Adds the logo and a link back to the panel. */
function head(slot) {
  const mark = Object.assign(document.createElement("img"), { src: "favicon.ico", alt: "", width: 28, height: 28 });
  const brand = document.createElement("a");
  brand.className = "brand";
  brand.href = "./";
  brand.append(mark, "millstream");
  const back = Object.assign(document.createElement("a"), { href: "./", textContent: "← Panel", className: "back" });
  const whole = document.createElement("div");
  whole.className = "api-head";
  whole.slot = slot;
  whole.append(brand, back);
  viewer.append(whole);
}

set(ATTRIBUTES);
paint();
prefersDark.addEventListener("change", paint);
head(ATTRIBUTES["render-style"] === "view" ? "overview" : "nav-logo");
document.body.append(viewer);
viewer.addEventListener("spec-loaded", () => viewer.setApiKey(LOGIN, "of the panel"));
read().then((api) => viewer.loadSpec(api), (error) => document.body.replaceChildren(`The document cannot be read: ${error.message}`));
