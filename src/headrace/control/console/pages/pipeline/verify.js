// Whether targets hold what they should: verifications as they are asked for, on a schedule, and what they have found.

/** @import {Schedule, Verification} from "../../answers.js" */
/** @import {Tab} from "../pipeline.js" */
/** @import {Place} from "../../place.js" */
import { ask, get } from "../../api.js";
import { begin, operationList, operationsOf } from "../../operations.js";
import { asked, doing, empty, field, shown } from "../../parts.js";
import { duration, time } from "../../show.js";
import { html, nothing } from "../../vendor/lit-html/lit-html.js";
import { verificationList } from "../../verification-list.js";

const EVERY_S = 5;
const LIMIT = 50;
/** What a schedule can be, in seconds. */
const RHYTHMS = [
  { text: "every hour", seconds: 3600 },
  { text: "every 6 hours", seconds: 21_600 },
  { text: "every day", seconds: 86_400 },
  { text: "every week", seconds: 604_800 },
];

/** @type {Tab} */
export const verify = (place, name) => {
  const before = () => (place.asked("before") ? `&before=${encodeURIComponent(place.asked("before"))}` : "");
  const found = place.news(
    EVERY_S,
    () => /** @type {Promise<Verification[]>} */ (get(`/pipelines/${name}/verifications?limit=${LIMIT}${before()}`)),
  );
  const schedule = place.news(
    60,
    () => /** @type {Promise<Schedule | null>} */ (get(`/pipelines/${name}/verification-schedule`)),
  );
  const asks = operationsOf(place, name, ["verify"], (one) => !one.options["windows"]);
  /** @param {string} id */
  const turn = (id) => {
    place.say({ before: id });
    place.refresh();
  };
  return () =>
    html`<div class="bar">
        ${shown(schedule, (is) => scheduled(place, name, is))}
        ${place.may("operator") ? html`<button class="primary end" @click=${() => now(place, name)}>Verify</button>` : nothing}
      </div>
      ${shown(found, (results) => (results.length ? verificationList(results, false) : empty("Its targets were not verified yet.")))}
      <nav class="pager" aria-label="Pages of results">
        ${place.asked("before") ? html`<button @click=${() => turn("")}>Newest</button>` : nothing}
        ${found.value?.length === LIMIT ? html`<button @click=${() => turn(String(found.value?.at(-1)?.id))}>Older</button>` : nothing}
      </nav>
      <h2>Asked for</h2>
      ${operationList(asks, "Nobody has asked for it yet.", () => html`<p class="muted">What it has found is in the list above.</p>`)}`;
};

/**
 * @param {Place} place
 * @param {string} name
 * @param {Schedule | null} is
 */
function scheduled(place, name, is) {
  const path = `/pipelines/${name}/verification-schedule`;
  const remove = async () => {
    await doing(() => ask("DELETE", path), "nothing is verified by itself any more");
    place.refresh();
  };
  const choose = async () => {
    const answer = await asked({
      title: `Verify ${name} again and again`,
      text: html`${field(
        "How often",
        html`<select name="every">
          ${RHYTHMS.map(({ text, seconds }) => html`<option value=${seconds} ?selected=${seconds === 86_400}>${text}</option>`)}
        </select>`,
      )}
      ${repairing}`,
      yes: "Keep",
      call: `PUT /api/v1${path}`,
    });
    if (answer)
      await doing(
        () => ask("PUT", path, { every: Number(answer.get("every")), repair: answer.has("repair") }),
        "the schedule is kept",
      );
    place.refresh();
  };
  return html`<span
      >${is ? html`Verified every ${duration(is.every)}, next ${time(is.next)}` : html`<span class="muted">Not verified by itself</span>`}</span
    >
    ${place.may("operator") ? html`<button @click=${choose}>Schedule</button>` : nothing}
    ${is && place.may("operator") ? html`<button @click=${remove}>End the schedule</button>` : nothing}`;
}

const repairing = html`<label class="choice"><input type="checkbox" name="repair" /> load again what differs</label>`;

/**
 * @param {Place} place
 * @param {string} name
 */
async function now(place, name) {
  const answer = await asked({
    title: `Verify ${name}`,
    text: html`<p>Holds its targets against their sources, while both keep changing.</p>
      ${field("Tables", html`<input name="table" placeholder="shop.orders, shop.c*" />`, "patterns with commas between; all tables when empty")}
      ${repairing}`,
    yes: "Verify now",
    call: `POST /api/v1/pipelines/${name}/verify`,
  });
  if (!answer) return;
  const table = String(answer.get("table"))
    .split(",")
    .map((text) => text.trim())
    .filter(Boolean);
  await begin(place, `/pipelines/${name}/verify`, { table, repair: answer.has("repair") }, "it is being verified");
}
