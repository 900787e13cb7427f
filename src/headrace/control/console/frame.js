// The frame around every page: where one can go, who is signed in, and how it looks.

/** @import {Place} from "./place.js" */
/** @import {Drawn} from "./parts.js" */
import { ask } from "./api.js";
import { doing } from "./parts.js";
import { changePassword } from "./password.js";
import { html, nothing } from "./vendor/lit-html/lit-html.js";

/** @type {{path: string, text: string, of: RegExp, role?: "operator" | "admin"}[]} */
const PLACES = [
  { path: "", text: "Pipelines", of: /^($|pipelines)/ },
  { path: "new", text: "New pipeline", of: /^new$/, role: "admin" },
  { path: "verifications", text: "Verification", of: /^verifications$/ },
  { path: "alerts", text: "Alerts", of: /^alerts/ },
  { path: "users", text: "Users", of: /^users$/ },
  { path: "audit", text: "Audit", of: /^audit$/, role: "admin" },
];
const THEMES = ["system", "light", "dark"];
const THEME = "headrace-theme";

export const mark = html`<svg class="mark" viewBox="0 0 24 24" width="22" height="22" aria-hidden="true">
  <path d="M2 7c4-4 6 3 10 0s6 3 10 0M2 13c4-4 6 3 10 0s6 3 10 0M2 19c4-4 6 3 10 0s6 3 10 0" />
</svg>`;

/**
 * @param {Place} place
 * @param {string} path of the page, behind /ui/
 * @param {Drawn} page
 * @param {() => void} signedOut
 */
export const frame = (place, path, page, signedOut) =>
  html`<a class="skip" href="#page">Skip to the page</a>
    <header class="side">
      <a class="brand" href="/ui/">${mark} headrace</a>
      <nav aria-label="Pages">
        ${PLACES.map(({ path: to, text, of, role }) =>
          role && !place.may(role)
            ? nothing
            : html`<a href="/ui/${to}" aria-current=${of.test(path) ? "page" : "false"}>${text}</a>`,
        )}
      </nav>
      <div class="who">
        <label class="theme"
          ><span class="unseen">Colours</span>
          <select @change=${chooseTheme}>
            ${THEMES.map((name) => html`<option ?selected=${name === theme()}>${name}</option>`)}
          </select>
        </label>
        <span class="user">${place.me.user} <small>${place.me.role}</small></span>
        <button class="quiet" @click=${() => changePassword(place, signedOut)}>Password</button>
        <button class="quiet" @click=${() => leave(signedOut)}>Sign out</button>
      </div>
    </header>
    <main id="page" tabindex="-1">${page}</main>`;

/** @param {() => void} signedOut */
async function leave(signedOut) {
  await doing(() => ask("DELETE", "/session"), "");
  signedOut();
}

const theme = () => localStorage.getItem(THEME) ?? "system";

export function useTheme() {
  document.documentElement.dataset["theme"] = theme();
}

/** @param {Event} event */
function chooseTheme(event) {
  localStorage.setItem(THEME, /** @type {HTMLSelectElement} */ (event.target).value);
  useTheme();
}
