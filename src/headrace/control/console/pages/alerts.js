// Alerts: what fires, what is over, by which rules, who is told, and what is silenced.

/** @import {Alert, Channel, Notice, Rule, Silence} from "../answers.js" */
/** @import {Page, Place} from "../place.js" */
import { channelList, noticeList } from "../alert-channels.js";
import { ruleList } from "../alert-rules.js";
import { ask, get } from "../api.js";
import { ago, asked, doing, empty, field, shown, table, tabs } from "../parts.js";
import { time } from "../show.js";
import { repeat } from "../vendor/lit-html/directives/repeat.js";
import { html, nothing } from "../vendor/lit-html/lit-html.js";

const EVERY_S = 5;
const LIMIT = 100;
const HOUR_S = 3600;
const TABS = [
  { name: "", text: "Now" },
  { name: "history", text: "History" },
  { name: "rules", text: "Rules" },
  { name: "silences", text: "Silences" },
  { name: "channels", text: "Channels" },
];
/** How long a silence may be, in seconds. */
const LENGTHS = [
  { text: "1 hour", seconds: HOUR_S },
  { text: "4 hours", seconds: 4 * HOUR_S },
  { text: "1 day", seconds: 24 * HOUR_S },
  { text: "1 week", seconds: 7 * 24 * HOUR_S },
];

/** @type {Page} */
export const alerts = (place) => {
  const tab = place.parts[0] ?? "";
  const draw = (DRAWN[tab] ?? now)(place);
  place.title = `Alerts · ${TABS.find(({ name }) => name === tab)?.text ?? "Now"}`;
  const links = TABS.map(({ name, text }) => ({ name, text, href: name ? `/ui/alerts/${name}` : "/ui/alerts" }));
  return () =>
    html`<div class="head"><h1>Alerts</h1></div>
      ${tabs("Parts of alerts", links, tab)} ${draw()}`;
};

/** @typedef {(place: Place) => () => unknown} Part */

/** @type {Part} */
const now = (place) => {
  const firing = place.news(EVERY_S, () => /** @type {Promise<Alert[]>} */ (get(`/alerts?state=firing&limit=200`)));
  return () =>
    shown(firing, (found) =>
      found.length ? alertList(place, found) : empty("Nothing fires.", html`<p>${TO_RULES}</p>`),
    );
};

const TO_RULES = html`<a href="/ui/alerts/rules">Rules</a> say what there is an alert on, and who is told.`;

/** @type {Part} */
const history = (place) => {
  const before = () => (place.asked("before") ? `&before=${encodeURIComponent(place.asked("before"))}` : "");
  const over = place.news(
    EVERY_S,
    () => /** @type {Promise<Alert[]>} */ (get(`/alerts?state=over&limit=${LIMIT}${before()}`)),
  );
  /** @param {string} id */
  const turn = (id) => {
    place.say({ before: id });
    place.refresh();
  };
  return () =>
    html`${shown(over, (found) => (found.length ? alertList(place, found) : empty("No alert is over yet.")))}
      <nav class="pager" aria-label="Pages of alerts">
        ${place.asked("before") ? html`<button @click=${() => turn("")}>Newest</button>` : nothing}
        ${over.value?.length === LIMIT ? html`<button @click=${() => turn(String(over.value?.at(-1)?.id))}>Older</button>` : nothing}
      </nav>`;
};

/** @type {Part} */
const rules = (place) => {
  // Together: a dialog that opened before the channels are known would say that there is none.
  const known = place.news(30, async () => {
    const [found, channels] = await Promise.all([
      /** @type {Promise<Rule[]>} */ (get("/alerts/rules")),
      /** @type {Promise<Channel[]>} */ (get("/alerts/channels")),
    ]);
    return { found, channels: channels.map(({ name }) => name) };
  });
  return () => shown(known, ({ found, channels }) => ruleList(place, found, channels));
};

/** @type {Part} */
const silences = (place) => {
  const known = place.news(EVERY_S, () => /** @type {Promise<Silence[]>} */ (get("/alerts/silences")));
  return () =>
    html`${place.may("operator") ? html`<div class="bar"><button class="primary" @click=${() => silence(place, "*", "*")}>Silence</button></div>` : nothing}
    ${shown(known, (found) => (found.length ? silenceList(place, found) : empty("Nothing was silenced.")))}`;
};

/** @type {Part} */
const channels = (place) => {
  const known = place.news(EVERY_S, () => /** @type {Promise<Channel[]>} */ (get("/alerts/channels")));
  const told = place.news(EVERY_S, () => /** @type {Promise<Notice[]>} */ (get(`/alerts/notices?limit=${LIMIT}`)));
  return () =>
    html`${shown(known, (found) => channelList(place, found))}
      <h2>What was told</h2>
      ${shown(told, (found) => (found.length ? noticeList(found) : empty("Nobody was told anything yet.")))}`;
};

/** @type {Record<string, Part>} */
const DRAWN = { "": now, history, rules, silences, channels };

/**
 * @param {Place} place
 * @param {Alert[]} found
 */
const alertList = (place, found) =>
  table(
    "Alerts",
    ["Severity", "Rule", "Pipeline", "What", "Since", "Told", ""],
    repeat(
      found,
      ({ id }) => id,
      (alert) => alertRow(place, alert),
    ),
  );

/**
 * @param {Place} place
 * @param {Alert} alert
 */
const alertRow = (place, alert) =>
  html`<tr>
    <td><span class="state ${alert.state === "over" ? "stopped" : alert.severity}">${alert.severity}</span></td>
    <th scope="row">${alert.rule}</th>
    <td>${alert.pipeline ? html`<a href="/ui/pipelines/${alert.pipeline}">${alert.pipeline}</a>` : "this server"}</td>
    <td class="wide">${alert.subject ? html`<strong>${alert.subject}</strong> ` : nothing}${alert.text}</td>
    <td>${ago(alert.fired)} ago${alert.over ? html`<div><small>until ${time(alert.over)}</small></div>` : nothing}</td>
    <td class="wide">${known(alert)}</td>
    <td>
      ${
        place.may("operator") && alert.state === "firing"
          ? html`<div class="buttons">
              ${alert.acknowledged_by ? nothing : html`<button aria-label="Acknowledge ${alert.rule}" @click=${() => acknowledge(place, alert)}>Acknowledge</button>`}
              ${alert.silenced ? nothing : html`<button aria-label="Silence ${alert.rule}" @click=${() => silence(place, alert.rule, alert.pipeline || "*")}>Silence</button>`}
            </div>`
          : nothing
      }
    </td>
  </tr>`;

/** @param {Alert} alert */
const known = (alert) =>
  html`${alert.told.length ? alert.told.join(", ") : html`<span class="muted">nobody</span>`}
  ${alert.silenced ? html`<div><span class="state waiting">silenced</span></div>` : nothing}
  ${alert.acknowledged_by ? html`<div><small>acknowledged by ${alert.acknowledged_by}</small></div>` : nothing}`;

/**
 * @param {Place} place
 * @param {Silence[]} found
 */
const silenceList = (place, found) =>
  table(
    "Silences",
    ["Rules", "Pipelines", "Reason", "By", "Until", ""],
    repeat(
      found,
      ({ id }) => id,
      (one) =>
        html`<tr>
          <th scope="row">${one.rule}</th>
          <td>${one.pipeline}</td>
          <td class="wide">${one.reason}</td>
          <td>${one.author}</td>
          <td><span class="when">${time(one.until)}</span></td>
          <td>
            ${
              place.may("operator") && Date.parse(one.until) > Date.now()
                ? html`<button aria-label="End the silence of ${one.rule}" @click=${() => end(place, one)}>End</button>`
                : html`<span class="muted">over</span>`
            }
          </td>
        </tr>`,
    ),
  );

/**
 * @param {Place} place
 * @param {Alert} alert
 */
async function acknowledge(place, alert) {
  await doing(() => ask("POST", `/alerts/${alert.id}/acknowledge`), "it is not told again");
  place.refresh();
}

/**
 * @param {Place} place
 * @param {string} rule
 * @param {string} pipeline
 */
async function silence(place, rule, pipeline) {
  const answer = await asked({
    title: "Silence alerts",
    text: html`<p>They are shown, and nobody is told of them until the silence ends.</p>
      ${field("Rules", html`<input name="rule" required pattern="[A-Za-z0-9_*?.\\-]+" .value=${rule} />`, "a name, with * and ?")}
      ${field("Pipelines", html`<input name="pipeline" required pattern="[A-Za-z0-9_*?.\\-]+" .value=${pipeline} />`, "a name, with * and ?")}
      ${field(
        "For how long",
        html`<select name="seconds">
          ${LENGTHS.map(({ text, seconds }) => html`<option value=${seconds}>${text}</option>`)}
        </select>`,
      )}
      ${field("Reason", html`<input name="reason" required maxlength="500" />`)}`,
    yes: "Silence",
    call: "POST /api/v1/alerts/silences",
  });
  if (!answer) return;
  const body = { rule: answer.get("rule"), pipeline: answer.get("pipeline"), reason: answer.get("reason") };
  await doing(
    () => ask("POST", "/alerts/silences", { ...body, seconds: Number(answer.get("seconds")) }),
    "they are silenced",
  );
  place.refresh();
}

/**
 * @param {Place} place
 * @param {Silence} one
 */
async function end(place, one) {
  await doing(() => ask("POST", `/alerts/silences/${one.id}/end`), "the silence has ended");
  place.refresh();
}
