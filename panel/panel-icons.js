// The logo and the icons, which are strokes on a square of 24 units.

import { html } from "./preact.js";

const PATHS = {
  overview: "M3 13h8V3H3zM13 21h8V11h-8zM3 21h8v-5H3zM13 3v5h8V3z",
  app: "M3.5 6h17v12h-17zM10 9.2v5.6l4.8-2.8z",
  recordings: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM4 4h16v16H4z",
  settings: "M4 7h9M19 7h1M16 4.5v5M4 17h1M11 17h9M8 14.5v5",
  users: "M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM2.5 20a6.5 6.5 0 0 1 13 0M16 4.5a3.5 3.5 0 0 1 0 6M18.5 14.5A6.5 6.5 0 0 1 21.5 20",
  log: "M5 4h14v16H5zM8.5 8.5h7M8.5 12h7M8.5 15.5h4",
  api: "M8.5 7.5 4 12l4.5 4.5M15.5 7.5 20 12l-4.5 4.5",
  play: "M7 4.5v15l12-7.5z",
  start: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM10 8.5v7l5.5-3.5z",
  stop: "M6 6h12v12H6z",
  add: "M12 5v14M5 12h14",
  remove: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  download: "M12 4v11M7.5 11 12 15.5 16.5 11M4 20h16",
  upload: "M12 16V5M7.5 9 12 4.5 16.5 9M4 20h16",
  record: "M12 7a5 5 0 1 0 0 10 5 5 0 0 0 0-10z",
  menu: "M4 7h16M4 12h16M4 17h16",
  logout: "M10 4H5v16h5M10 12h10M16 8l4 4-4 4",
  viewers: "M2.5 12S6 5.5 12 5.5 21.5 12 21.5 12 18 18.5 12 18.5 2.5 12 2.5 12zM12 9.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6z",
};

/** An icon beside a text. The text gives the meaning, so the icon is hidden from screen readers. */
export const Icon = ({ name }) => html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;

/** The logo: a mill wheel above its stream. */
export const Mark = () => html`<svg class="mark" viewBox="0 0 32 32" aria-hidden="true">
  <rect width="32" height="32" rx="8" />
  <g><circle cx="16" cy="13.5" r="7" /><path d="M16 4.5v18M7 13.5h18M9.6 7.1l12.8 12.8M22.4 7.1 9.6 19.9" /><path d="M4.5 26.5q2.9-2.6 5.75 0t5.75 0 5.75 0 5.75 0" /></g>
</svg>`;
