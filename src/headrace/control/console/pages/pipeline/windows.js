// Windows of event time in a pipeline's lakes, their certificates, and checking these against all files.

/** @import {Ways} from "../../answers.js" */
/** @import {Tab} from "../pipeline.js" */
/**
 * @typedef {{number: number, operations: Record<string, number>, digest: string, id: [number, number], files: unknown[],
 *   round: {commit: number, watermark: {of: string, us: number, lacking: {stage: string, name: string}[]} | null}}} Certificate
 * @typedef {{table: string, from: string, to: string, state: string, rows: number, certificate?: Certificate}} Window
 */
import { get } from "../../api.js";
import { begin, operationList, operationsOf } from "../../operations.js";
import { empty, shown, table } from "../../parts.js";
import { count, time } from "../../show.js";
import { html, nothing } from "../../vendor/lit-html/lit-html.js";

const EVERY_S = 10;
const LIMIT = 200;

/** @type {Tab} */
export const windows = (place, name) => {
  const flow = () => (place.asked("flow") ? `&flow=${encodeURIComponent(place.asked("flow"))}` : "");
  const news = place.news(
    EVERY_S,
    () => /** @type {Promise<Window[]>} */ (get(`/pipelines/${name}/windows?limit=${LIMIT}${flow()}`)),
  );
  const ways = place.news(0, () => /** @type {Promise<Ways>} */ (get(`/pipelines/${name}/ways`)));
  const checks = operationsOf(place, name, ["verify"], (one) => Boolean(one.options["windows"]));
  const check = () =>
    begin(place, `/pipelines/${name}/verify`, { windows: true }, "the certificates are being checked");
  return () => {
    const lakes = (ways.value?.flows ?? []).filter(({ type }) => type === "lake");
    return html`<div class="bar">
        ${
          lakes.length > 1
            ? html`<label
                >Lake of flow
                <select
                  @change=${(/** @type {Event} */ event) => {
                    place.say({ flow: /** @type {HTMLSelectElement} */ (event.target).value });
                    place.refresh();
                  }}
                >
                  ${lakes.map((lake) => html`<option ?selected=${lake.name === place.asked("flow")}>${lake.name}</option>`)}
                </select></label
              >`
            : nothing
        }
        ${place.may("operator") ? html`<button class="end" @click=${check}>Check all certificates</button>` : nothing}
      </div>
      ${shown(news, (found) => (found.length ? html`${listed(found)}${found.length === LIMIT ? html`<p><small>The first ${LIMIT}.</small></p>` : nothing}` : empty("There is no window.")))}
      <h2>Checks</h2>
      ${operationList(checks, "Nobody has checked them from here yet.")}`;
  };
};

/** @param {Window[]} found */
const listed = (found) =>
  table(
    "Windows",
    ["Table", "From (UTC)", "To", "State", ["Rows", "number"], "Closed by", "Certificate"],
    found.map(
      (window) =>
        html`<tr>
          <th scope="row">${window.table}</th>
          <td><span class="when">${window.from}</span></td>
          <td><span class="when">${window.to}</span></td>
          <td><span class="state ${window.state}">${window.state}</span></td>
          <td class="number">${count(window.rows)}</td>
          <td>${window.certificate ? closedBy(window.certificate) : nothing}</td>
          <td>${window.certificate ? certificate(window.certificate) : nothing}</td>
        </tr>`,
    ),
  );

/** @param {Certificate} certificate */
function closedBy({ round: { watermark } }) {
  if (watermark === null) return nothing;
  return html`${watermark.of}
    <span class="when">${time(new Date(watermark.us / 1000))}</span>
    ${watermark.lacking.length ? html`<span class="state waiting">${count(watermark.lacking.length)} lacking</span>` : nothing}`;
}

/** @param {Certificate} certificate */
const certificate = ({ number, operations, digest, id, files, round }) =>
  html`<details>
    <summary>${number ? `amendment ${number}` : "the first"}</summary>
    <dl>
      <dt>Operations</dt>
      <dd>
        ${Object.entries(operations)
          .map(([kind, rows]) => `${kind} ${count(rows)}`)
          .join(", ")}
      </dd>
      <dt>Digest</dt>
      <dd><code>${digest}</code></dd>
      <dt>Ids</dt>
      <dd>${id.join(" to ")}</dd>
      <dt>Files, commit</dt>
      <dd>${count(files.length)}, ${round.commit}</dd>
    </dl>
  </details>`;
