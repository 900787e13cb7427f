// Rules of alerts: what they are about in words, and the dialog that writes one.

/** @import {Rule} from "./answers.js" */
/** @import {Place} from "./place.js" */
import { ask } from "./api.js";
import { asked, doing, empty, field, table } from "./parts.js";
import { duration } from "./show.js";
import { repeat } from "./vendor/lit-html/directives/repeat.js";
import { html, nothing } from "./vendor/lit-html/lit-html.js";

const SEVERITIES = ["info", "warning", "critical"];
/** What a rule can be about. `limit` is the name of its figure, and `of` what that counts. */
const KINDS = [
  { kind: "state", text: "a pipeline is stalled, waiting or failed" },
  { kind: "lag", text: "lag above", limit: "above_s", of: "seconds", usual: 180 },
  { kind: "latency", text: "latency above", limit: "above_s", of: "seconds", usual: 60 },
  { kind: "watermark", text: "watermark older than", limit: "above_s", of: "seconds", usual: 600 },
  { kind: "silent", text: "a path is silent" },
  { kind: "host", text: "a host is silent" },
  { kind: "set_aside", text: "rows set aside, more than", limit: "above", of: "rows", usual: 0 },
  { kind: "verification", text: "a verification is red" },
  { kind: "schema", text: "a captured table has changed within", limit: "within_s", of: "seconds", usual: 86_400 },
  {
    kind: "log_number",
    text: "log file numbers fell, or the log is lost, within",
    limit: "within_s",
    of: "seconds",
    usual: 86_400,
  },
  { kind: "disk", text: "free on a disk below", limit: "below_percent", of: "%", usual: 10 },
];

/**
 * @param {Place} place
 * @param {Rule[]} found
 * @param {string[]} channels
 */
export const ruleList = (place, found, channels) =>
  html`${
    place.may("admin")
      ? html`<div class="bar">
          <button class="primary" @click=${() => writeRule(place, null, channels)}>Add a rule</button>
        </div>`
      : nothing
  }
  ${found.length ? listed(place, found, channels) : empty("There is no rule: nobody is told of anything.")}`;

/**
 * @param {Place} place
 * @param {Rule[]} found
 * @param {string[]} channels
 */
const listed = (place, found, channels) =>
  table(
    "Rules",
    ["Name", "When", "Pipelines", "Severity", "Told", ""],
    repeat(
      found,
      ({ name }) => name,
      (one) =>
        html`<tr>
          <th scope="row">${one.name}</th>
          <td class="wide">
            ${inWords(one)}${one.rule.active ? nothing : html` <span class="state stopped">off</span>`}
          </td>
          <td>${one.rule.pipeline}</td>
          <td>${one.rule.severity}</td>
          <td class="wide">${toldBy(one)}</td>
          <td>
            ${
              place.may("admin")
                ? html`<div class="buttons">
                    <button aria-label="Change ${one.name}" @click=${() => writeRule(place, one, channels)}>
                      Change
                    </button>
                    <button aria-label="Remove ${one.name}" @click=${() => remove(place, one)}>Remove</button>
                  </div>`
                : nothing
            }
          </td>
        </tr>`,
    ),
  );

/** @param {Rule} one */
function inWords({ rule }) {
  const kind = KINDS.find((each) => each.kind === rule.when.kind);
  const limit = kind?.limit ? ` ${limitOf(rule.when, kind.limit)} ${kind.of}` : "";
  return `${kind?.text ?? rule.when.kind}${limit}, for ${duration(rule.holds_s)}`;
}

/**
 * @param {object} when
 * @param {string} name
 */
const limitOf = (when, name) => Number(Object.entries(when).find(([key]) => key === name)?.[1] ?? 0);

/** @param {Rule} one */
const toldBy = ({ rule }) =>
  [
    rule.to?.join(", ") || "nobody",
    ...(rule.escalate ?? []).map(({ after_s, to }) => `after ${duration(after_s)} ${to.join(", ")}`),
  ].join("; ");

/**
 * Asks for a rule and keeps it; what the dialog does not ask stays as it is in one that is changed.
 * @param {Place} place
 * @param {Rule | null} one
 * @param {string[]} channels
 */
async function writeRule(place, one, channels) {
  const step = one?.rule.escalate?.[0];
  const answer = await asked({
    title: one ? `Change ${one.name}` : "Add a rule",
    text: html`${one ? nothing : field("Name", html`<input name="name" required pattern="[a-z0-9][a-z0-9_\\-]{0,62}" autocomplete="off" />`)}
      ${whenFields(one)}
      ${field("Pipelines", html`<input name="pipeline" required pattern="[A-Za-z0-9_*?.\\-]+" .value=${one?.rule.pipeline ?? "*"} />`, "a name, with * and ?")}
      ${field(
        "Severity",
        html`<select name="severity">
          ${SEVERITIES.map((name) => html`<option ?selected=${name === (one?.rule.severity ?? "warning")}>${name}</option>`)}
        </select>`,
      )}
      ${field("Holds for", html`<input name="holds_s" type="number" min="0" required .value=${String(one?.rule.holds_s ?? 60)} />`, "seconds before somebody is told, and before it is over")}
      ${choices("to", "Tell", channels, one?.rule.to ?? [])}
      ${field("Escalate after", html`<input name="after_s" type="number" min="1" .value=${String(step?.after_s ?? "")} />`, "seconds, when nobody has acknowledged it; empty: not at all")}
      ${choices("further", "and tell", channels, step?.to ?? [])}
      ${field("What to do", html`<input name="note" maxlength="2000" .value=${one?.rule.note ?? ""} />`, "it is told with the alert")}
      <label class="choice"
        ><input name="active" type="checkbox" ?checked=${one?.rule.active ?? true} /> in force</label
      >`,
    yes: "Keep",
    call: "PUT /api/v1/alerts/rules/NAME",
  });
  if (!answer) return;
  const name = one?.name ?? String(answer.get("name"));
  await doing(() => ask("PUT", `/alerts/rules/${encodeURIComponent(name)}`, written(answer, one)), `${name} is kept`);
  place.refresh();
}

/** @param {Rule | null} one */
const whenFields = (one) => {
  const chosen = KINDS.find(({ kind }) => kind === one?.rule.when.kind);
  const limit = chosen?.limit && one ? limitOf(one.rule.when, chosen.limit) : "";
  return html`${field(
    "When",
    html`<select name="kind">
      ${KINDS.map(({ kind, text, of }) => html`<option value=${kind} ?selected=${kind === one?.rule.when.kind}>${text}${of ? ` … ${of}` : ""}</option>`)}
    </select>`,
  )}
  ${field("Limit", html`<input name="limit" type="number" min="0" step="any" .value=${String(limit)} />`, "for those that have one (…); usual when empty")}`;
};

/**
 * @param {string} name
 * @param {string} label
 * @param {string[]} channels
 * @param {string[]} chosen
 */
const choices = (name, label, channels, chosen) =>
  html`<fieldset class="choices">
    <legend>${label}</legend>
    ${channels.map((channel) => html`<label class="choice"><input type="checkbox" name=${name} value=${channel} ?checked=${chosen.includes(channel)} /> ${channel}</label>`)}
    ${channels.length ? nothing : html`<small>There is no channel yet.</small>`}
  </fieldset>`;

/**
 * @param {FormData} answer
 * @param {Rule | null} one
 */
function written(answer, one) {
  const kind = KINDS.find((each) => each.kind === answer.get("kind"));
  const isSame = one?.rule.when.kind === kind?.kind;
  const limit = answer.get("limit") === "" ? kind?.usual : Number(answer.get("limit"));
  const after = Number(answer.get("after_s"));
  const seconds = Number(answer.get("holds_s"));
  return {
    ...one?.rule,
    when: { ...(isSame ? one?.rule.when : {}), kind: kind?.kind, ...(kind?.limit ? { [kind.limit]: limit } : {}) },
    pipeline: answer.get("pipeline"),
    severity: answer.get("severity"),
    holds_s: seconds,
    settles_s: seconds,
    to: answer.getAll("to"),
    escalate: [
      ...(after ? [{ after_s: after, to: answer.getAll("further") }] : []),
      ...(one?.rule.escalate ?? []).slice(1),
    ],
    note: answer.get("note"),
    active: answer.has("active"),
  };
}

/**
 * @param {Place} place
 * @param {Rule} one
 */
async function remove(place, one) {
  const answer = await asked({
    title: `Remove ${one.name}?`,
    text: "Its alerts are over. The history keeps them.",
    yes: "Remove",
    isDangerous: true,
    call: `DELETE /api/v1/alerts/rules/${one.name}`,
  });
  if (answer) await doing(() => ask("DELETE", `/alerts/rules/${one.name}`), `${one.name} is removed`);
  place.refresh();
}
