// What a pipeline's processes did, and each process, the newest first.

/** @import {PipelineEvent, Run} from "../../answers.js" */
/** @import {Tab} from "../pipeline.js" */
import { get } from "../../api.js";
import { ago, empty, shown, table } from "../../parts.js";
import { duration, time } from "../../show.js";
import { repeat } from "../../vendor/lit-html/directives/repeat.js";
import { html, nothing } from "../../vendor/lit-html/lit-html.js";

const EVERY_S = 5;
const LIMIT = 50;

/** @type {Tab} */
export const events = (place, name) => {
  const before = () => (place.asked("before") ? `&before=${encodeURIComponent(place.asked("before"))}` : "");
  const happened = place.news(
    EVERY_S,
    () => /** @type {Promise<PipelineEvent[]>} */ (get(`/pipelines/${name}/events?limit=${LIMIT}${before()}`)),
  );
  const runs = place.news(EVERY_S, () => /** @type {Promise<Run[]>} */ (get(`/pipelines/${name}/runs?limit=20`)));
  /** @param {string} id */
  const turn = (id) => {
    place.say({ before: id });
    place.refresh();
  };
  return () =>
    html`<h2>Events</h2>
      ${shown(happened, (found) =>
        found.length
          ? table(
              "Events",
              ["When", "What", "Message"],
              repeat(found, ({ id }) => id, event),
            )
          : empty("Nothing has happened yet."),
      )}
      <nav class="pager" aria-label="Pages of events">
        ${place.asked("before") ? html`<button @click=${() => turn("")}>Newest</button>` : nothing}
        ${happened.value?.length === LIMIT ? html`<button @click=${() => turn(String(happened.value?.at(-1)?.id))}>Older</button>` : nothing}
      </nav>
      <h2>Runs</h2>
      ${shown(runs, (found) =>
        found.length
          ? table(
              "Runs",
              [
                "Began",
                "State",
                ["Lasted", "number"],
                ["Revision", "number"],
                ["Attempt", "number"],
                "Where",
                "How it ended",
              ],
              repeat(found, ({ id }) => id, run),
            )
          : empty("It has never run."),
      )}`;
};

/** @param {PipelineEvent} found */
const event = ({ at, kind, message }) =>
  html`<tr>
    <td><span class="when" title=${time(at)}>${time(at)}</span></td>
    <td><span class="state ${kind}">${kind}</span></td>
    <td class="wide">${message}</td>
  </tr>`;

/** @param {Run} found */
const run = (found) =>
  html`<tr>
    <td>${ago(found.began ?? found.asked)}</td>
    <td><span class="state ${found.state}">${found.state}</span></td>
    <td class="number">${duration(lasted(found))}</td>
    <td class="number">${found.revision}</td>
    <td class="number">${found.attempt}</td>
    <td>${found.host}${found.pid === null ? "" : `, process ${found.pid}`}</td>
    <td class="wide">${found.why}${found.fix ? html`<div class="fix">${found.fix}</div>` : nothing}</td>
  </tr>`;

/** @param {Run} found */
const lasted = ({ began, ended }) =>
  began === null ? null : ((ended === null ? Date.now() : Date.parse(ended)) - Date.parse(began)) / 1000;
