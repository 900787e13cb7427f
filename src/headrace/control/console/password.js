// Everybody's own password: the dialog that changes it.

/** @import {Place} from "./place.js" */
import { ask } from "./api.js";
import { asked, doing, field } from "./parts.js";
import { html } from "./vendor/lit-html/lit-html.js";

export const SHORTEST_PASSWORD = 12;

/**
 * Asks for the current password and a new one. All sessions of the user end with it, also this one.
 * @param {Place} place
 * @param {() => void} signedOut
 */
export async function changePassword(place, signedOut) {
  const answer = await asked({
    title: "Change your password",
    text: html`<input name="username" autocomplete="username" .value=${place.me.user} hidden />
      ${field("Current password", html`<input name="current" type="password" autocomplete="current-password" required />`)}
      <div @input=${compare}>
        ${field(
          "New password",
          html`<input
            name="new"
            type="password"
            autocomplete="new-password"
            minlength=${SHORTEST_PASSWORD}
            maxlength="200"
            required
          />`,
          `at least ${SHORTEST_PASSWORD} characters, such as four words`,
        )}
        ${field("The new one again", html`<input name="again" type="password" autocomplete="new-password" required />`)}
      </div>
      <p class="muted">All your sessions end, also this one: sign in again with the new password. Tokens stay.</p>`,
    yes: "Change",
    call: "PUT /api/v1/me/password",
  });
  if (!answer) return;
  const body = { current: answer.get("current"), new: answer.get("new") };
  const isDone = await doing(async () => {
    await ask("PUT", "/me/password", body);
    return true;
  }, "The password is changed");
  if (isDone) signedOut();
}

/**
 * Keeps the dialog from being answered while the new password was not written twice the same.
 * @param {Event} event
 */
function compare(event) {
  const [fresh, again] = /** @type {HTMLElement} */ (event.currentTarget).querySelectorAll("input");
  again?.setCustomValidity(again.value === fresh?.value ? "" : "This is not the new password that stands above.");
}
