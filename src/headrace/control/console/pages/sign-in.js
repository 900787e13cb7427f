// Signing in: the only page that is shown to everybody.

import { ask, Problem } from "../api.js";
import { html } from "../vendor/lit-html/lit-html.js";
import { mark } from "../frame.js";

/** @param {() => void} signedIn called when somebody is there */
export function signIn(signedIn) {
  /** @param {SubmitEvent} event */
  const submit = async (event) => {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.target);
    const told = /** @type {HTMLElement} */ (form.querySelector("[role=alert]"));
    const given = new FormData(form);
    try {
      await ask("POST", "/session", { name: given.get("name"), password: given.get("password") });
      signedIn();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      told.textContent = `${error.message}: ${error.fix}`;
      form.querySelector("input")?.focus();
    }
  };
  return html`<main class="alone">
    <form class="sign-in" @submit=${submit}>
      <h1>${mark} headrace</h1>
      <label class="field"><span>Name</span><input name="name" autocomplete="username" required autofocus /></label>
      <label class="field"
        ><span>Password</span><input name="password" type="password" autocomplete="current-password" required
      /></label>
      <p role="alert"></p>
      <button class="primary">Sign in</button>
    </form>
  </main>`;
}
