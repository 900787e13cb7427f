// Full loads of tables: how far each is, and steering them. Capture and delivery of changes go on meanwhile.

/** @import {Load} from "../../answers.js" */
/** @import {Tab} from "../pipeline.js" */
/** @import {Place} from "../../place.js" */
import { get } from "../../api.js";
import { begin, operationList, operationsOf } from "../../operations.js";
import { asked, empty, field, shown, table } from "../../parts.js";
import { count } from "../../show.js";
import { repeat } from "../../vendor/lit-html/directives/repeat.js";
import { html, nothing } from "../../vendor/lit-html/lit-html.js";

const EVERY_S = 2;
/** Which colour a load's state has. */
const LIKE = { waiting: "stopped", loading: "starting", paused: "waiting", loaded: "done", cancelled: "stopped" };

/** @type {Tab} */
export const loads = (place, name) => {
  const news = place.news(EVERY_S, () => /** @type {Promise<Load[]>} */ (get(`/pipelines/${name}/loads`)));
  const asks = operationsOf(place, name, ["load", "load_pause", "load_resume", "load_cancel"]);
  return () =>
    html`${shown(
        news,
        (found) =>
          html`${buttons(place, name)}
          ${found.length ? listed(place, name, found) : empty("No table is being loaded, as far as a running process tells.")}`,
      )}
      <h2>Asked for</h2>
      ${operationList(asks, "Nobody has asked for a load yet.")}`;
};

/**
 * A pause holds until somebody resumes, also when nothing is being loaded: so both are always there.
 * @param {Place} place
 * @param {string} name
 */
function buttons(place, name) {
  if (!place.may("operator")) return nothing;
  const path = `/pipelines/${name}/load`;
  return html`<div class="bar">
    <button @click=${() => again(place, name)}>Load tables again</button>
    <button @click=${() => begin(place, `${path}/pause`, undefined, "loads are being paused")}>Pause</button>
    <button @click=${() => begin(place, `${path}/resume`, undefined, "loads go on")}>Resume</button>
  </div>`;
}

/**
 * @param {Place} place
 * @param {string} name
 * @param {Load[]} found
 */
const listed = (place, name, found) =>
  table(
    "Full loads",
    ["Table", "State", "Progress", ["Rows read", "number"], ["Expected", "number"], ["Parts", "number"], ""],
    repeat(
      found,
      ({ source, table: of }) => `${source} ${of}`,
      (load) =>
        html`<tr>
          <th scope="row">${load.table} <small>${load.source}</small></th>
          <td><span class="state ${LIKE[load.state]}">${load.state}</span></td>
          <td>${progress(load)}</td>
          <td class="number">${count(load.rows)}</td>
          <td class="number" title="by the source's own estimate">${count(load.rows_expected)}</td>
          <td class="number">${count(load.shards_done)} of ${count(load.shards)}</td>
          <td>
            ${
              place.may("operator") && ["waiting", "loading", "paused"].includes(load.state)
                ? html`<button aria-label="Cancel the load of ${load.table}" @click=${() => cancel(place, name, load)}>
                    Cancel
                  </button>`
                : nothing
            }
          </td>
        </tr>`,
    ),
  );

/** @param {Load} load */
function progress({ table: of, state, rows, rows_expected: expected }) {
  const most = Math.max(expected, rows, 1);
  const done = state === "loaded" ? most : rows;
  return html`<progress max=${most} value=${done} aria-label="Progress of ${of}"></progress>
    <small>${Math.floor((100 * done) / most)} %</small>`;
}

/**
 * @param {Place} place
 * @param {string} name
 * @param {Load} load
 */
async function cancel(place, name, { table: of }) {
  const answer = await asked({
    title: `Cancel the load of ${of}?`,
    text: "What it has read stays in the targets; the rest is missing there until the table is loaded again.",
    yes: "Cancel the load",
    isDangerous: true,
    call: `POST /api/v1/pipelines/${name}/load/cancel {"table": ["${of}"]}`,
  });
  if (answer)
    await begin(place, `/pipelines/${name}/load/cancel`, { table: [of] }, `the load of ${of} is being cancelled`);
}

/**
 * @param {Place} place
 * @param {string} name
 */
async function again(place, name) {
  const answer = await asked({
    title: "Load tables again",
    text: html`<p>Reads them from the source, and repairs what the targets have of them, while the pipeline runs.</p>
      ${field("Tables", html`<input name="table" placeholder="shop.orders, shop.c*" />`, "patterns with commas between; all tables when empty")}
      ${field("Only rows where", html`<input name="where" placeholder="id > 1000" />`, "SQL of the source; all rows when empty")}`,
    yes: "Load",
    call: `POST /api/v1/pipelines/${name}/load`,
  });
  if (!answer) return;
  const tables = String(answer.get("table"))
    .split(",")
    .map((text) => text.trim())
    .filter(Boolean);
  await begin(
    place,
    `/pipelines/${name}/load`,
    { table: tables, where: String(answer.get("where")) || null },
    "the load is asked for",
  );
}
