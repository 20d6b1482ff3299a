// Login: the form for the first user, the login page, and the dialog for a user whose session has ended.

import { call, doCall, noteRoles } from "./panel-api.js";
import { Dialog, Field, html, useState, valuesOf } from "./panel-kit.js";
import { Mark } from "./panel-icons.js";
import { md5 } from "./panel-md5.js";
import { strings } from "./panel-strings.js";

async function logIn(email, password) {
  const answer = await call("POST", "/users/authenticate", { email, password: md5(password) }, { open: true });
  if (!answer.success) throw new Error(answer.message || strings.wrongLogin);
  noteRoles(answer.message);
}

function useForm(work) {
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError("");
    try {
      await work(valuesOf(event.target));
    } catch (failure) {
      setError(failure.message || strings.failed);
    }
    setBusy(false);
  };
  return { error, busy, submit };
}

function LoginForm({ onDone }) {
  const form = useForm(async ({ email, password }) => {
    await logIn(email, password);
    onDone();
  });
  return html`<form onSubmit=${form.submit}>
    <${Field} label=${strings.email}><input name="email" type="text" required autocomplete="username" autofocus /><//>
    <${Field} label=${strings.password}><input name="password" type="password" required autocomplete="current-password" /><//>
    <p class="error" role="alert">${form.error}</p>
    <button class="main" disabled=${form.busy}>${strings.login}</button>
  </form>`;
}

export function Login({ onDone }) {
  return html`<main class="door"><h1><${Mark} />${strings.product}</h1><${LoginForm} onDone=${onDone} /></main>`;
}

/** The login as a dialog over the page, which keeps its state. */
export function LoginDialog({ onDone }) {
  return html`<${Dialog} title=${strings.login} onClose=${() => {}}>
    <p>${strings.sessionOver}</p>
    <${LoginForm} onDone=${onDone} />
  <//>`;
}

export function FirstUser({ onDone }) {
  const form = useForm(async ({ email, password, again, code }) => {
    if (password !== again) throw new Error(strings.passwordsDiffer);
    const user = { email, password: md5(password) };
    if (code) user.code = code;
    try {
      await doCall("POST", "/users/initial", user);
    } catch (error) {
      throw new Error(error.message || strings.firstUserFailed);
    }
    await logIn(email, password);
    onDone();
  });
  return html`<main class="door">
    <h1><${Mark} />${strings.product}</h1>
    <h2>${strings.firstUser}</h2>
    <p class="quiet">${strings.firstUserText}</p>
    <form onSubmit=${form.submit}>
      <${Field} label=${strings.email}><input name="email" type="email" required autocomplete="username" autofocus /><//>
      <${Field} label=${strings.password}><input name="password" type="password" required minlength="8" autocomplete="new-password" /><//>
      <${Field} label=${strings.repeatPassword}><input name="again" type="password" required autocomplete="new-password" /><//>
      <${Field} label=${strings.code} hint=${strings.codeHint}><input name="code" type="text" autocomplete="off" /><//>
      <p class="error" role="alert">${form.error}</p>
      <button class="main" disabled=${form.busy}>${strings.firstUser}</button>
    </form>
  </main>`;
}
