// Shows an address as a QR code, for the camera of a phone.

import qrcode from "./qrcode.js";
import { Dialog, html } from "./panel-kit.js";
import { strings } from "./panel-strings.js";

/** Width of the quiet zone in modules (ISO/IEC 18004 §5.3.8). */
const QUIET = 4;

export default function QrDialog({ name, url, onClose }) {
  const code = qrcode(0, "M");
  code.addData(url);
  code.make();
  const size = code.getModuleCount();
  const dark = [];
  for (let row = 0; row < size; row += 1) {
    for (let column = 0; column < size; column += 1) {
      if (code.isDark(row, column)) dark.push(`M${column + QUIET} ${row + QUIET}h1v1h-1z`);
    }
  }
  const box = size + 2 * QUIET;
  return html`<${Dialog} title=${name} onClose=${onClose}>
    <svg class="qr" viewBox=${`0 0 ${box} ${box}`} role="img" aria-label=${strings.qrOf(name)} shape-rendering="crispEdges">
      <rect width=${box} height=${box} fill="#fff" /><path d=${dark.join("")} fill="#000" />
    </svg>
    <p><code>${url}</code></p>
    <form method="dialog" class="actions"><button class="main" autofocus>${strings.close}</button></form>
  <//>`;
}
