// Operations: what somebody asked for that takes its time, and what came of it. They stay visible after a page was left.

/** @import {Operation} from "./answers.js" */
/** @import {News, Place} from "./place.js" */
/** @import {Drawn} from "./parts.js" */
import { ask, get } from "./api.js";
import { ago, doing, empty, shown, table } from "./parts.js";
import { cell } from "./show.js";
import { repeat } from "./vendor/lit-html/directives/repeat.js";
import { html, nothing } from "./vendor/lit-html/lit-html.js";

const EVERY_S = 2;

/**
 * The newest operations of some kinds.
 * @param {Place} place
 * @param {string} name of the pipeline
 * @param {Operation["kind"][]} kinds
 * @param {(one: Operation) => boolean} [isMeant] which of them
 * @returns {News<Operation[]>}
 */
export const operationsOf = (place, name, kinds, isMeant = () => true) =>
  place.news(EVERY_S, async () => {
    /** @type {Operation[]} */
    const found = await get(`/pipelines/${name}/operations?limit=100`);
    return found.filter((one) => kinds.includes(one.kind) && isMeant(one)).slice(0, 10);
  });

/**
 * Asks for one, and looks what comes of it.
 * @param {Place} place
 * @param {string} path below the pipeline's
 * @param {unknown} body
 * @param {string} done
 */
export async function begin(place, path, body, done) {
  await doing(() => ask("POST", path, body), done);
  place.refresh();
}

/**
 * @param {News<Operation[]>} news
 * @param {string} none what to say when there is none
 * @param {(result: Operation["result"]) => Drawn} [draw] of what a command printed
 */
export const operationList = (news, none, draw = resultTable) =>
  shown(news, (found) =>
    found.length
      ? repeat(
          found,
          ({ id }) => id,
          (one) => drawn(one, draw),
        )
      : empty(none),
  );

/**
 * @param {Operation} one
 * @param {(result: Operation["result"]) => Drawn} draw
 */
const drawn = (one, draw) =>
  html`<details class="operation" ?open=${one.state === "failed"}>
    <summary>
      <span class="state ${one.state === "running" ? "starting" : one.state}">${one.state}</span>
      <strong>${one.kind.replace("_", " ")}</strong> ${said(one.options)}
      <small>asked by ${one.user}, ${ago(one.asked)} ago</small>
    </summary>
    ${one.why ? html`<p>${one.why}</p>` : nothing}
    ${one.fix ? html`<p class="fix">What to do: ${one.fix}</p>` : nothing}
    ${one.result.length ? draw(one.result) : one.why || one.state === "running" ? nothing : html`<p class="muted">It had nothing to tell.</p>`}
  </details>`;

/** @param {Record<string, unknown>} options */
const said = (options) =>
  Object.entries(options)
    .map(([name, value]) => `${name.replace("_", " ")} ${Array.isArray(value) ? value.join(", ") : cell(value)}`)
    .join(", ");

/** @param {Record<string, unknown>[]} rows */
export function resultTable(rows) {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  return table(
    "Result",
    columns,
    rows.map(
      (row) =>
        html`<tr>
          ${columns.map((column) => html`<td class="wide">${row[column] === undefined ? "" : cell(row[column])}</td>`)}
        </tr>`,
    ),
  );
}
