// Rows that targets have refused (and rows whose mask failed): why, how many, their values, and delivering them again.

/** @import {Tab} from "../pipeline.js" */
/** @import {Place} from "../../place.js" */
/**
 * @typedef {{namespace: string, flow?: string, column?: string, mask?: string, reason: string, rows: number, delivered?: number}} Fault
 * @typedef {{namespace: string, flow?: string, reason: string, id?: number, offset?: number, delivered?: boolean,
 *   row: {schema: {fields: {name: string}[]}, payload: {tuple: unknown[]}[]}}} Refused
 */
import { get } from "../../api.js";
import { begin, operationList, operationsOf } from "../../operations.js";
import { asked, empty, shown, table } from "../../parts.js";
import { cell, count } from "../../show.js";
import { html, nothing } from "../../vendor/lit-html/lit-html.js";

const EVERY_S = 10;
const PAGE = 20;

/** @type {Tab} */
export const errors = (place, name) => {
  const faults = place.news(EVERY_S, () => /** @type {Promise<Fault[]>} */ (get(`/pipelines/${name}/errors`)));
  const replays = operationsOf(place, name, ["replay"]);
  const rows = place.may("operator") ? refusedRows(place, name) : () => nothing;
  return () =>
    html`${shown(faults, (found) => (found.length ? listed(place, name, found) : empty("No row was set aside.")))}
      ${faults.value?.length ? rows() : nothing}
      <h2>Deliveries</h2>
      ${operationList(replays, "None of them was delivered again from here yet.", result)}`;
};

/** @param {Record<string, unknown>[]} flows */
const result = (flows) =>
  html`<ul>
    ${flows.map(
      ({ flow, delivered, refused }) =>
        html`${Object.entries(/** @type {Record<string, number>} */ (delivered)).map(
          ([namespace, number]) => html`<li>${flow}: ${count(number)} rows of ${namespace} delivered</li>`,
        )}
        ${/** @type {string[]} */ (refused).map((message) => html`<li>${flow}: still refused: ${message}</li>`)}`,
    )}
  </ul>`;

/**
 * @param {Place} place
 * @param {string} name
 * @param {Fault[]} faults
 */
function listed(place, name, faults) {
  const columns = [
    "Table",
    "Flow or column",
    "Reason",
    /** @type {[string, "number"]} */ (["Waiting", "number"]),
    /** @type {[string, "number"]} */ (["Delivered since", "number"]),
    "",
  ];
  return table(
    "Rows set aside",
    columns,
    faults.map(
      (fault) =>
        html`<tr>
          <th scope="row">${fault.namespace}</th>
          <td>${fault.flow ?? `${fault.column}, mask ${fault.mask}`}</td>
          <td class="wide">${fault.reason}</td>
          <td class="number">${count(fault.rows - (fault.delivered ?? 0))}</td>
          <td class="number">${fault.flow === undefined ? "–" : count(fault.delivered)}</td>
          <td>
            ${
              fault.flow !== undefined && place.may("operator") && fault.rows > (fault.delivered ?? 0)
                ? html`<button @click=${() => replay(place, name, fault.flow ?? "")}>Deliver again</button>`
                : nothing
            }
          </td>
        </tr>`,
    ),
  );
}

/**
 * @param {Place} place
 * @param {string} name
 * @param {string} flow
 */
async function replay(place, name, flow) {
  const answer = await asked({
    title: `Deliver rows of ${flow} again?`,
    text: "All rows that wait in its ledger are delivered through the flow as it is now. Where a row has changed since, the later change stays; what is refused again goes on waiting.",
    yes: "Deliver",
    call: `POST /api/v1/pipelines/${name}/errors/replay {"flow": "${flow}"}`,
  });
  if (answer) await begin(place, `/pipelines/${name}/errors/replay`, { flow }, `rows of ${flow} are being delivered`);
}

/**
 * @param {Place} place
 * @param {string} name
 */
function refusedRows(place, name) {
  const skip = () => Number(place.asked("skip")) || 0;
  const news = place.news(
    EVERY_S,
    () => /** @type {Promise<Refused[]>} */ (get(`/pipelines/${name}/errors/rows?limit=${PAGE}&skip=${skip()}`)),
  );
  /** @param {number} to */
  const turn = (to) => {
    place.say({ skip: to > 0 ? String(to) : "" });
    place.refresh();
  };
  return () =>
    html`<h2>Rows</h2>
      ${shown(news, (rows) => (rows.length ? table("Rows", ["Table", "Values", "Reason", ""], rows.map(refused)) : empty("No more rows.")))}
      <nav class="pager" aria-label="Pages of rows">
        <button ?disabled=${skip() === 0} @click=${() => turn(skip() - PAGE)}>Before</button>
        <button ?disabled=${(news.value?.length ?? 0) < PAGE} @click=${() => turn(skip() + PAGE)}>Next</button>
      </nav>`;
}

/** @param {Refused} found */
const refused = ({ namespace, reason, delivered, row }) =>
  html`<tr>
    <th scope="row">${namespace}</th>
    <td class="wide">
      ${values(row).map(([column, value]) => html`<span class="pair"><small>${column}</small> ${cell(value)}</span> `)}
    </td>
    <td class="wide">${reason}</td>
    <td>
      ${delivered ? html`<span class="state done">delivered</span>` : html`<span class="state open">waiting</span>`}
    </td>
  </tr>`;

/**
 * @param {Refused["row"]} row
 * @returns {[string, unknown][]}
 */
const values = ({ schema, payload }) => schema.fields.map(({ name }, index) => [name, payload[0]?.tuple[index]]);
