// Results of verifications: equal or not, by how much, and the first rows that differ, side by side.

/** @import {Verification} from "./answers.js" */
import { ago, table } from "./parts.js";
import { cell, count, duration } from "./show.js";
import { repeat } from "./vendor/lit-html/directives/repeat.js";
import { html, nothing } from "./vendor/lit-html/lit-html.js";

/**
 * @param {Verification[]} results
 * @param {boolean} isOfMany whether they are of several pipelines
 */
export const verificationList = (results, isOfMany) =>
  table(
    "Verifications",
    [
      ...(isOfMany ? ["Pipeline"] : []),
      "Flow",
      "Table",
      "Result",
      ["At the source", "number"],
      ["At the target", "number"],
      ["Differing keys", "number"],
      "When",
      ["Took", "number"],
    ],
    repeat(
      results,
      ({ id }) => id,
      (one) => row(one, isOfMany),
    ),
  );

/**
 * @param {Verification} one
 * @param {boolean} isOfMany
 */
const row = (one, isOfMany) =>
  html`<tr>
    ${isOfMany ? html`<td><a href="/ui/pipelines/${one.pipeline}/verify">${one.pipeline}</a></td>` : nothing}
    <td>${one.flow}</td>
    <th scope="row">${one.source_table}</th>
    <td class="wide">${verdict(one)}</td>
    <td class="number">${count(one.expected_rows)}</td>
    <td class="number">${count(one.actual_rows)}</td>
    <td class="number">${count(one.differing_keys)}</td>
    <td>${ago(one.at)} ago</td>
    <td class="number">${duration(one.took_s)}</td>
  </tr>`;

/** @param {Verification} one */
function verdict({ ok, problem, fix, differences }) {
  if (ok) return html`<span class="state same">the same</span>`;
  if (problem)
    return html`<span class="state waiting">not compared</span> ${problem}
      <div class="fix">What to do: ${fix}</div>`;
  if (!differences.length) return html`<span class="state differs">differs</span>`;
  return html`<details>
    <summary><span class="state differs">differs</span></summary>
    ${table(
      "Differences",
      ["Kind", "Key", "At the source", "At the target"],
      differences.map(
        (one) =>
          html`<tr>
            <td>${one["kind"]}</td>
            <td>${cell(one["key"])}</td>
            <td class="wide">${cell(one["expected"])}</td>
            <td class="wide">${cell(one["actual"])}</td>
          </tr>`,
      ),
    )}
  </details>`;
}
