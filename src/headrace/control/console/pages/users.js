// Users and tokens. Everybody has tokens of their own; users are for admins.

/** @import {Role, Token, User} from "../answers.js" */
/** @import {Page, Place} from "../place.js" */
import { ask, get } from "../api.js";
import { ago, asked, doing, empty, field, shown, table } from "../parts.js";
import { SHORTEST_PASSWORD } from "../password.js";
import { time } from "../show.js";
import { repeat } from "../vendor/lit-html/directives/repeat.js";
import { html, nothing } from "../vendor/lit-html/lit-html.js";

/** @type {Role[]} */
const ROLES = ["viewer", "operator", "admin"];

/** @type {Page} */
export const users = (place) => {
  place.title = "Users";
  const everybody = place.may("admin") ? place.news(0, () => /** @type {Promise<User[]>} */ (get("/users"))) : null;
  const whose = () => place.asked("user") || place.me.user;
  const tokens = place.news(
    0,
    () => /** @type {Promise<Token[]>} */ (get(`/users/${encodeURIComponent(whose())}/tokens`)),
  );
  return () =>
    html`<div class="head">
        <h1>Users</h1>
        ${everybody ? html`<div class="buttons"><button class="primary" @click=${() => add(place)}>Add a user</button></div>` : nothing}
      </div>
      ${everybody ? shown(everybody, (found) => userList(place, found)) : nothing}
      <h2>Tokens of ${whose()}</h2>
      <p class="muted">
        Programs show a token instead of a password. It may do what its role allows, and not more than its user.
      </p>
      ${shown(tokens, (found) => (found.length ? tokenList(place, found) : empty("There is no token.")))}
      ${whose() === place.me.user ? html`<div class="bar"><button @click=${() => make(place)}>Make a token</button></div>` : nothing}`;
};

/**
 * @param {Place} place
 * @param {User[]} found
 */
const userList = (place, found) =>
  table(
    "Users",
    ["Name", "Role", "May log in", "Made", ""],
    repeat(
      found,
      ({ name }) => name,
      (user) =>
        html`<tr>
          <th scope="row">${user.name}</th>
          <td>${user.role}</td>
          <td>${user.active ? "yes" : "no"}</td>
          <td>${ago(user.made)} ago</td>
          <td>
            <div class="buttons">
              <button
                aria-label="Tokens of ${user.name}"
                @click=${() => {
                  place.say({ user: user.name });
                  place.refresh();
                }}
              >
                Tokens
              </button>
              <button aria-label="Change ${user.name}" @click=${() => change(place, user)}>Change</button>
              <button aria-label="Remove ${user.name}" @click=${() => remove(place, user)}>Remove</button>
            </div>
          </td>
        </tr>`,
    ),
  );

/**
 * @param {Place} place
 * @param {Token[]} found
 */
const tokenList = (place, found) =>
  table(
    "Tokens",
    ["Name", "Role", "Made", "Ends", ""],
    repeat(
      found,
      ({ id }) => id,
      (token) =>
        html`<tr>
          <th scope="row">${token.name}</th>
          <td>${token.role}</td>
          <td>${ago(token.made)} ago</td>
          <td><span class="when">${time(token.expires)}</span></td>
          <td><button aria-label="Revoke ${token.name}" @click=${() => revoke(place, token)}>Revoke</button></td>
        </tr>`,
    ),
  );

/**
 * @param {Role} chosen
 * @param {Role[]} [roles]
 */
const roleField = (chosen, roles = ROLES) =>
  field(
    "Role",
    html`<select name="role">
      ${roles.map((role) => html`<option ?selected=${role === chosen}>${role}</option>`)}
    </select>`,
    "viewers see; operators start, stop and repair; admins write flow files",
  );

/** @param {boolean} isNeeded */
const passwordField = (isNeeded) =>
  field(
    isNeeded ? "Password" : "New password",
    html`<input
      name="password"
      type="password"
      autocomplete="new-password"
      minlength=${SHORTEST_PASSWORD}
      ?required=${isNeeded}
    />`,
    isNeeded ? `at least ${SHORTEST_PASSWORD} characters` : "empty: it stays as it is",
  );

/** @param {Place} place */
async function add(place) {
  const answer = await asked({
    title: "Add a user",
    text: html`${field("Name", html`<input name="name" required pattern="[A-Za-z0-9][A-Za-z0-9._@\\-]{0,62}" autocomplete="off" />`)}
    ${roleField("viewer")} ${passwordField(true)}`,
    yes: "Add",
  });
  if (!answer) return;
  const body = { name: answer.get("name"), role: answer.get("role"), password: answer.get("password") };
  await doing(() => ask("POST", "/users", body), `${body.name} is added`);
  place.refresh();
}

/**
 * @param {Place} place
 * @param {User} user
 */
async function change(place, user) {
  const answer = await asked({
    title: `Change ${user.name}`,
    text: html`${roleField(user.role)} ${passwordField(false)}
      <label class="choice"><input name="active" type="checkbox" ?checked=${user.active} /> may log in</label>
      <p class="muted">The user's sessions end.</p>`,
    yes: "Change",
  });
  if (!answer) return;
  const password = answer.get("password");
  const body = { role: answer.get("role"), active: answer.has("active"), ...(password ? { password } : {}) };
  await doing(() => ask("PATCH", `/users/${encodeURIComponent(user.name)}`, body), `${user.name} is changed`);
  place.refresh();
}

/**
 * @param {Place} place
 * @param {User} user
 */
async function remove(place, user) {
  const answer = await asked({
    title: `Remove ${user.name}?`,
    text: "With all tokens and sessions. The audit keeps what was done.",
    yes: "Remove",
    isDangerous: true,
  });
  if (answer) await doing(() => ask("DELETE", `/users/${encodeURIComponent(user.name)}`), `${user.name} is removed`);
  place.refresh();
}

/** @param {Place} place */
async function make(place) {
  const answer = await asked({
    title: "Make a token",
    text: html`${field("Name", html`<input name="name" required maxlength="200" autocomplete="off" />`, "what it is for")}
    ${roleField(place.me.role, ROLES.slice(0, ROLES.indexOf(place.me.role) + 1))}
    ${field("Days", html`<input name="days" type="number" min="1" max="3650" value="90" required />`)}`,
    yes: "Make",
  });
  if (!answer) return;
  const body = { name: answer.get("name"), role: answer.get("role"), days: Number(answer.get("days")) };
  /** @type {Token | undefined} */
  const token = await doing(() => ask("POST", `/users/${encodeURIComponent(place.me.user)}/tokens`, body), "");
  place.refresh();
  if (token)
    await asked({
      title: `The token ${token.name}`,
      text: html`<p>It is shown this once only. Keep it where secrets are kept.</p>
        <p><code class="secret">${token.secret}</code></p>`,
      yes: "It is kept",
    });
}

/**
 * @param {Place} place
 * @param {Token} token
 */
async function revoke(place, token) {
  const answer = await asked({
    title: `Revoke ${token.name}?`,
    text: "Programs that show it are refused from now on.",
    yes: "Revoke",
    isDangerous: true,
  });
  if (answer)
    await doing(
      () => ask("DELETE", `/users/${encodeURIComponent(token.user)}/tokens/${token.id}`),
      `${token.name} is revoked`,
    );
  place.refresh();
}
