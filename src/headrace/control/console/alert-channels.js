// Channels of alerts: how somebody is told, whether that works, and what was told.

/** @import {Channel, Notice} from "./answers.js" */
/** @import {Place} from "./place.js" */
import { ask } from "./api.js";
import { ago, asked, doing, empty, field, table } from "./parts.js";
import { count } from "./show.js";
import { repeat } from "./vendor/lit-html/directives/repeat.js";
import { html, nothing } from "./vendor/lit-html/lit-html.js";

const LIKE = { sent: "done", waiting: "waiting", refused: "failed", "given up": "failed" };
const EXAMPLES = {
  email: {
    kind: "email",
    host: "mail.example.org",
    port: 587,
    encryption: "starttls",
    user: "headrace",
    password: "${MAIL_PASSWORD}",
    sender: "headrace@example.org",
    to: ["oncall@example.org"],
  },
  webhook: { kind: "webhook", url: "${CHAT_URL}", body: { text: "{title}\n{text}" } },
};

/**
 * @param {Place} place
 * @param {Channel[]} found
 */
export const channelList = (place, found) =>
  html`${
    place.may("admin")
      ? html`<div class="bar">
          <button class="primary" @click=${() => write(place, null, EXAMPLES.email)}>Add e-mail</button>
          <button class="primary" @click=${() => write(place, null, EXAMPLES.webhook)}>Add a webhook</button>
        </div>`
      : nothing
  }
  ${found.length ? listed(place, found) : empty("There is no channel: nobody can be told of anything.")}`;

/**
 * @param {Place} place
 * @param {Channel[]} found
 */
const listed = (place, found) =>
  table(
    "Channels",
    ["Name", "Kind", "To", ["Waiting", "number"], ""],
    repeat(
      found,
      ({ name }) => name,
      (one) =>
        html`<tr>
          <th scope="row">${one.name}</th>
          <td>${one.channel.kind}</td>
          <td class="wide">${one.channel.kind === "email" ? one.channel.to.join(", ") : one.channel.url}</td>
          <td class="number">${count(one.waiting)}</td>
          <td>
            <div class="buttons">
              ${place.may("operator") ? html`<button aria-label="Try ${one.name}" @click=${() => tryIt(place, one)}>Try</button>` : nothing}
              ${
                place.may("admin")
                  ? html`<button aria-label="Change ${one.name}" @click=${() => write(place, one.name, one.channel)}>
                        Change
                      </button>
                      <button aria-label="Remove ${one.name}" @click=${() => remove(place, one)}>Remove</button>`
                  : nothing
              }
            </div>
          </td>
        </tr>`,
    ),
  );

/** @param {Notice[]} found */
export const noticeList = (found) =>
  table(
    "Notices",
    ["When", "Channel", "What", "Alert", "Came to"],
    repeat(
      found,
      ({ id }) => id,
      (one) =>
        html`<tr>
          <td>${ago(one.made)} ago</td>
          <th scope="row">${one.channel}</th>
          <td>${one.kind}</td>
          <td class="wide">
            ${one.alert === null ? nothing : `${one.content["rule"]} ${one.content["pipeline"]} ${one.content["subject"]}`}
          </td>
          <td class="wide">
            <span class="state ${LIKE[one.state]}">${one.state}</span> ${one.why}
            ${one.attempts > 1 ? html`<small>attempt ${one.attempts}</small>` : nothing}
          </td>
        </tr>`,
    ),
  );

/**
 * @param {Place} place
 * @param {string | null} name
 * @param {object} channel
 */
async function write(place, name, channel) {
  const answer = await asked({
    title: name ? `Change ${name}` : "Add a channel",
    text: html`${name ? nothing : field("Name", html`<input name="name" required pattern="[a-z0-9][a-z0-9_\\-]{0,62}" autocomplete="off" />`)}
    ${field("Options", html`<textarea name="options" rows="12" cols="60" spellcheck="false" .value=${JSON.stringify(channel, null, 2)}></textarea>`, "as JSON; secrets as ${NAME}. docs/how-to/alerts.md has all of them")}`,
    yes: "Keep",
    call: "PUT /api/v1/alerts/channels/NAME",
  });
  if (!answer) return;
  const chosen = name ?? String(answer.get("name"));
  await doing(() => ask("PUT", `/alerts/channels/${encodeURIComponent(chosen)}`, options(answer)), `${chosen} is kept`);
  place.refresh();
}

/**
 * What was written; text that is no JSON goes to the API as it is, which says so.
 * @param {FormData} answer
 */
function options(answer) {
  const text = String(answer.get("options"));
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/**
 * @param {Place} place
 * @param {Channel} one
 */
async function tryIt(place, one) {
  await doing(
    () => ask("POST", `/alerts/channels/${one.name}/try`),
    "a test is on its way; below it says what came of it",
  );
  place.refresh();
}

/**
 * @param {Place} place
 * @param {Channel} one
 */
async function remove(place, one) {
  const answer = await asked({
    title: `Remove ${one.name}?`,
    text: "What waits for it is not sent any more.",
    yes: "Remove",
    isDangerous: true,
    call: `DELETE /api/v1/alerts/channels/${one.name}`,
  });
  if (answer) await doing(() => ask("DELETE", `/alerts/channels/${one.name}`), `${one.name} is removed`);
  place.refresh();
}
