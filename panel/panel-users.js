// The page of users and their rights.

import { call, doCall, pageOf } from "./panel-api.js";
import { Confirm, Dialog, Field, attempt, html, useEffect, usePolled, useState, valuesOf } from "./panel-kit.js";
import { md5 } from "./panel-md5.js";
import { strings } from "./panel-strings.js";

const EVERYWHERE = "system";

function AddUser({ apps, onClose, onDone }) {
  const add = async (event) => {
    event.preventDefault();
    const { email, password, role, scope } = valuesOf(event.target);
    const user = { email, password: md5(password), userType: role, scope, appNameUserType: { [scope]: role } };
    if (await attempt(() => doCall("POST", "/users", user))) {
      onDone();
      onClose();
    }
  };
  return html`<${Dialog} title=${strings.addUser} onClose=${onClose}>
    <form onSubmit=${add}>
      <${Field} label=${strings.email}><input name="email" type="email" required autocomplete="off" autofocus /><//>
      <${Field} label=${strings.password}><input name="password" type="password" required minlength="8" autocomplete="new-password" /><//>
      <${Field} label=${strings.role}><select name="role">
        ${Object.entries(strings.roles).map(([key, text]) => html`<option value=${key}>${text}</option>`)}
      </select><//>
      <${Field} label=${strings.scope}><select name="scope">
        <option value=${EVERYWHERE}>${strings.everywhere}</option>
        ${apps.map((app) => html`<option value=${app}>${app}</option>`)}
      </select><//>
      <div class="actions">
        <button type="button" onClick=${onClose}>${strings.cancel}</button>
        <button class="main">${strings.addUser}</button>
      </div>
    </form>
  <//>`;
}

/** A dialog for the roles of another user in each application, and for a new password. */
function EditUser({ user, apps, onClose, onDone }) {
  const rights = rightsOf(user);
  const others = [EVERYWHERE, ...apps].filter((place) => !rights.some(([scope]) => scope === place));
  const nameOf = (scope) => (scope === EVERYWHERE ? strings.everywhere : scope);
  const [place, setPlace] = useState("");
  const roles = (name, role) => html`<select name=${name}>
    ${Object.entries(strings.roles).map(([key, text]) => html`<option value=${key} selected=${key === role}>${text}</option>`)}
    <option value="" selected=${role === ""}>${strings.noAccess}</option>
  </select>`;
  const change = async (event) => {
    event.preventDefault();
    const values = valuesOf(event.target);
    const chosen = rights.map(([scope], at) => [scope, values[`role${at}`]]);
    if (values.place) chosen.push([values.place, values.role]);
    const left = chosen.filter(([, role]) => role);
    const work = async () => {
      if (left.length === 0) throw new Error(strings.noRights);
      const [scope, userType] = left.find(([place]) => place === EVERYWHERE) ?? left[0];
      const { password, ...rest } = user;
      const body = { ...rest, scope, userType, appNameUserType: Object.fromEntries(left) };
      if (values.fresh) body.newPassword = md5(values.fresh);
      await doCall("PUT", "/users", body);
    };
    if (await attempt(work, strings.saved)) {
      onDone();
      onClose();
    }
  };
  return html`<${Dialog} title=${`${strings.editUser}: ${user.email}`} onClose=${onClose}>
    <form onSubmit=${change}>
      ${rights.map(([scope, role], at) => html`<${Field} label=${`${strings.role} · ${nameOf(scope)}`}>${roles(`role${at}`, role)}<//>`)}
      ${others.length > 0 && html`
        <${Field} label=${strings.anotherPlace}><select name="place" value=${place} onChange=${(event) => setPlace(event.target.value)}>
          <option value="">–</option>
          ${others.map((place) => html`<option value=${place}>${nameOf(place)}</option>`)}
        </select><//>
        ${place && html`<${Field} label=${strings.roleThere}>${roles("role", "READ_ONLY")}<//>`}`}
      <${Field} label=${strings.newPassword} hint=${strings.passwordStays}>
        <input name="fresh" type="password" minlength="8" autocomplete="new-password" />
      <//>
      <div class="actions">
        <button type="button" onClick=${onClose}>${strings.cancel}</button>
        <button class="main">${strings.save}</button>
      </div>
    </form>
  <//>`;
}

function Password({ onClose }) {
  const change = async (event) => {
    event.preventDefault();
    const { old, fresh, again } = valuesOf(event.target);
    const work = async () => {
      if (fresh !== again) throw new Error(strings.passwordsDiffer);
      await doCall("POST", "/users/password", { password: md5(old), newPassword: md5(fresh) });
    };
    if (await attempt(work, strings.saved)) onClose();
  };
  return html`<${Dialog} title=${strings.changePassword} onClose=${onClose}>
    <form onSubmit=${change}>
      <${Field} label=${strings.oldPassword}><input name="old" type="password" required autocomplete="current-password" autofocus /><//>
      <${Field} label=${strings.newPassword}><input name="fresh" type="password" required minlength="8" autocomplete="new-password" /><//>
      <${Field} label=${strings.repeatPassword}><input name="again" type="password" required autocomplete="new-password" /><//>
      <div class="actions">
        <button type="button" onClick=${onClose}>${strings.cancel}</button>
        <button class="main">${strings.save}</button>
      </div>
    </form>
  <//>`;
}

/** The role of a user in each application, or everywhere. */
const rightsOf = (user) => Object.entries(user.appNameUserType ?? (user.scope ? { [user.scope]: user.userType } : {}));

export default function Users() {
  // The offsets of all pages up to the one shown.
  const [offsets, setOffsets] = useState([0]);
  const offset = offsets.at(-1);
  const [polled, again] = usePolled(async (signal) => ({ offset, ...await pageOf("/user-list", offset, signal) }), 0, [offset]);
  // The previous page is shown until this one has loaded; meanwhile its buttons do nothing.
  const page = polled?.offset === offset ? polled : { ...polled, next: null };
  const list = page.list ?? [];
  useEffect(() => {
    if (page.offset === offset && offset > 0 && list.length === 0) setOffsets(offsets.slice(0, -1));
  }, [polled]);
  const [apps, setApps] = useState([]);
  const [open, setOpen] = useState(null);
  const [editing, setEditing] = useState(null);
  const [removing, setRemoving] = useState(null);
  useEffect(() => {
    document.title = `${strings.users} · ${strings.product}`;
    call("GET", "/applications").then((answer) => setApps(answer.applications.sort()));
  }, []);
  const close = () => setOpen(null);
  return html`
    <header class="head"><h1>${strings.users}</h1>
      <div class="actions">
        <button type="button" onClick=${() => setOpen("password")}>${strings.changePassword}</button>
        <button type="button" class="main manages" onClick=${() => setOpen("add")}>${strings.addUser}</button>
      </div>
    </header>
    <table>
      <thead><tr><th>${strings.email}</th><th>${strings.role}</th><th></th></tr></thead>
      <tbody>${list.map((user) => html`<tr key=${user.email}>
        <td>${user.email}</td>
        <td data-label=${strings.role}>${rightsOf(user).map(([scope, role]) =>
          html`<div>${(strings.roles[role] ?? role).split(":")[0]} <span class="quiet">· ${scope === EVERYWHERE ? strings.everywhere : scope}</span></div>`)}</td>
        <td class="end many">
          <button type="button" class="small manages" onClick=${() => setEditing(user)}>${strings.editShort}</button>
          <button type="button" class="small manages" onClick=${() => setRemoving(user.email)}>${strings.remove}</button>
        </td>
      </tr>`)}</tbody>
    </table>
    ${(offset > 0 || page.next) && html`<nav class="pages" aria-label=${strings.users}>
      <button type="button" disabled=${offset === 0} onClick=${() => setOffsets(offsets.slice(0, -1))}>${strings.previous}</button>
      <span>${strings.positions((page.offset ?? 0) + 1, (page.offset ?? 0) + list.length)}</span>
      <button type="button" disabled=${!page.next} onClick=${() => setOffsets([...offsets, page.next])}>${strings.next}</button>
    </nav>`}
    ${open === "add" && html`<${AddUser} apps=${apps} onClose=${close} onDone=${again} />`}
    ${editing && html`<${EditUser} user=${editing} apps=${apps} onClose=${() => setEditing(null)} onDone=${again} />`}
    ${open === "password" && html`<${Password} onClose=${close} />`}
    ${removing && html`<${Confirm} title=${strings.removeUser} text=${strings.removeUserText(removing)} onClose=${() => setRemoving(null)}
      act=${async () => { await attempt(() => doCall("DELETE", `/users/${encodeURIComponent(removing)}`)); again(); }} />`}
  `;
}
