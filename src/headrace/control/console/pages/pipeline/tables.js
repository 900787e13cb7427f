// Tables: the versions of their columns as they were captured, and their rows in the lake, as of any moment or change by change.

/** @import {Ways} from "../../answers.js" */
/** @import {Tab} from "../pipeline.js" */
/** @import {Place} from "../../place.js" */
/** @typedef {{table: string, version: number, from: number, key: string[], columns: {name: string, type: string, source_type: string}[]}} Version */
import { get } from "../../api.js";
import { empty, shown, table } from "../../parts.js";
import { count } from "../../show.js";
import { html, nothing } from "../../vendor/lit-html/lit-html.js";
import { lakeRows } from "./lake-rows.js";

/** @type {Tab} */
export const tables = (place, name) => {
  const versions = place.news(30, () => /** @type {Promise<Version[]>} */ (get(`/pipelines/${name}/tables`)));
  const ways = place.news(0, () => /** @type {Promise<Ways>} */ (get(`/pipelines/${name}/ways`)));
  const chosen = place.asked("table");
  const rows = chosen && place.may("operator") ? lakeRows(place, name, chosen) : null;
  return () =>
    shown(versions, (found) =>
      shown(ways, ({ flows }) => {
        if (!chosen) return found.length ? all(place, found) : empty("No table was captured yet.");
        const lakes = flows.filter(({ type }) => type === "lake").map((flow) => flow.name);
        return html`<h2><a href=${place.saying({ table: "" })} class="crumb">All tables</a> / ${chosen}</h2>
          ${columns(found.filter((version) => version.table === chosen))}
          ${rows && lakes.length ? rows(lakes) : html`<p class="muted">${rows ? "No flow of it fills a lake, so its rows cannot be read as of a moment." : "Rows are shown to operators."}</p>`}`;
      }),
    );
};

/**
 * @param {Place} place
 * @param {Version[]} versions
 */
function all(place, versions) {
  const newest = new Map(versions.map((version) => [version.table, version]));
  return table(
    "Tables",
    ["Table", ["Versions", "number"], ["Columns", "number"], "Key"],
    [...newest.values()].map(
      (version) =>
        html`<tr>
          <th scope="row"><a href=${place.saying({ table: version.table })}>${version.table}</a></th>
          <td class="number">${version.version + 1}</td>
          <td class="number">${version.columns.length}</td>
          <td>${version.key.join(", ") || html`<span class="muted">none</span>`}</td>
        </tr>`,
    ),
  );
}

/** @param {Version[]} versions */
const columns = (versions) =>
  versions.toReversed().map(
    (version, index) =>
      html`<details class="operation" ?open=${index === 0 && versions.length === 1}>
        <summary>
          Version ${version.version}
          <small>from position ${version.from}, ${count(version.columns.length)} columns</small>
        </summary>
        ${table(
          `Columns of version ${version.version}`,
          ["Column", "At the source", "In headrace", ""],
          version.columns.map(
            (column) =>
              html`<tr>
                <th scope="row">${column.name}</th>
                <td><code>${column.source_type}</code></td>
                <td><code>${column.type}</code></td>
                <td>${version.key.includes(column.name) ? "key" : nothing}</td>
              </tr>`,
          ),
        )}
      </details>`,
  );
