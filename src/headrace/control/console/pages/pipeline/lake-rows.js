// Rows of one table in a lake: as it was at a moment, or every change of it or of one row. What is chosen stands in the address.

/** @import {LakeVersion} from "../../answers.js" */
/** @import {News, Place} from "../../place.js" */
import { get } from "../../api.js";
import { empty, field, shown, table } from "../../parts.js";
import { cell, count, time } from "../../show.js";
import { html, nothing } from "../../vendor/lit-html/lit-html.js";

const PAGE = 50;
const STEPS = 1000;

/**
 * @param {Place} place
 * @param {string} name of the pipeline
 * @param {string} chosen type.source.schema.table
 * @returns {(lakes: string[]) => unknown}
 */
export function lakeRows(place, name, chosen) {
  const skip = () => Number(place.asked("skip")) || 0;
  const flow = () => (place.asked("flow") ? `&flow=${encodeURIComponent(place.asked("flow"))}` : "");
  const path = `/pipelines/${name}/lake`;
  const versions = place.news(0, async () => {
    /** @type {LakeVersion[]} */
    const found = await get(`${path}?limit=200${flow()}`);
    return found.filter(({ namespace }) => namespace.startsWith(`${chosen}.`));
  });
  const rows = place.news(0, () => {
    const query = new URLSearchParams({ table: chosen, limit: String(PAGE), skip: String(skip()) });
    if (place.asked("time")) query.set("time", place.asked("time"));
    if (place.asked("key")) query.set("key", place.asked("key"));
    const verb = place.asked("show") === "changes" ? "history" : "asof";
    return /** @type {Promise<Record<string, unknown>[]>} */ (get(`${path}/${verb}?${query}${flow()}`));
  });
  /** @param {Record<string, string>} values */
  const choose = (values) => {
    place.say({ skip: "", ...values });
    rows.value = undefined;
    place.refresh();
  };
  return (lakes) =>
    html`<h2>Rows</h2>
      ${shown(versions, (found) => (found.length ? html`${choices(place, lakes, found, choose)} ${drawnRows(rows)} ${pager(skip(), rows, choose)}` : empty("Its lake has nothing of this table yet.")))}`;
}

/**
 * @param {Place} place
 * @param {string[]} lakes
 * @param {LakeVersion[]} versions
 * @param {(values: Record<string, string>) => void} choose
 */
function choices(place, lakes, versions, choose) {
  // Times have microseconds, of which a browser's have none: the next millisecond has all of them behind it.
  const first = Math.min(...versions.map(({ commit_time: [from] }) => Date.parse(from))) + 1;
  const last = Math.max(...versions.map(({ commit_time: [, to] }) => Date.parse(to))) + 1;
  const [at, show] = [place.asked("time"), place.asked("show")];
  const step = Math.max(1, (last - first) / STEPS);
  const moment = at ? Date.parse(at) : last;
  /** @param {(value: string) => Record<string, string>} values */
  const on = (values) => (/** @type {Event} */ event) =>
    choose(values(/** @type {HTMLInputElement} */ (event.target).value));
  return html`<div class="bar">
      ${
        lakes.length > 1
          ? html`<label
              >Lake of flow
              <select @change=${on((value) => ({ flow: value }))}>
                ${lakes.map((flow) => html`<option ?selected=${flow === place.asked("flow")}>${flow}</option>`)}
              </select></label
            >`
          : nothing
      }
      <label
        >Show
        <select @change=${on((value) => ({ show: value }))}>
          <option value="">rows as of a moment</option>
          <option value="changes" ?selected=${show === "changes"}>every change up to it</option>
        </select></label
      >
      ${show === "changes" ? html`<label>Key <input placeholder="id=17" pattern="[^=]+=.*" .value=${place.asked("key")} @change=${on((value) => ({ key: value }))} /></label>` : nothing}
      <button class="end" ?disabled=${!at} @click=${() => choose({ time: "" })}>Newest</button>
    </div>
    ${field(
      "As of",
      html`<input
        type="range"
        min="0"
        max=${STEPS}
        .value=${String(Math.round((moment - first) / step))}
        aria-valuetext=${time(new Date(moment))}
        @change=${on((value) => ({ time: new Date(first + Number(value) * step).toISOString() }))}
      />`,
      html`<span role="status">${at ? time(at) : `the newest, ${time(new Date(last))}`}</span>; the lake has changes
        from ${time(new Date(first))} to ${time(new Date(last))}`,
    )}`;
}

/** @param {News<Record<string, unknown>[]>} news */
const drawnRows = (news) =>
  shown(news, (rows) => {
    if (!rows.length) return empty("There is no row.");
    const columns = Object.keys(/** @type {Record<string, unknown>} */ (rows[0]));
    return table(
      "Rows",
      columns,
      rows.map(
        (row) =>
          html`<tr>
            ${columns.map((column) => html`<td class=${row[column] === null ? "muted" : ""}>${cell(row[column])}</td>`)}
          </tr>`,
      ),
    );
  });

/**
 * @param {number} skip
 * @param {News<unknown[]>} rows
 * @param {(values: Record<string, string>) => void} choose
 */
const pager = (skip, rows, choose) =>
  html`<nav class="pager" aria-label="Pages of rows">
    <button ?disabled=${skip === 0} @click=${() => choose({ skip: skip > PAGE ? String(skip - PAGE) : "" })}>
      Before
    </button>
    <span>${rows.value?.length ? `${count(skip + 1)} to ${count(skip + rows.value.length)}` : nothing}</span>
    <button ?disabled=${(rows.value?.length ?? 0) < PAGE} @click=${() => choose({ skip: String(skip + PAGE) })}>
      Next
    </button>
  </nav>`;
