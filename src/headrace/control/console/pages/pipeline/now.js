// What passes through a pipeline now: its way as a picture, how rate and delay went, and every table.

/** @import {Figures, Stage, Ways} from "../../answers.js" */
/** @import {Tab} from "../pipeline.js" */
import { get } from "../../api.js";
import { history, remembered } from "../../history.js";
import { empty, shown, sparkline, table } from "../../parts.js";
import { compact, count, duration, size, time } from "../../show.js";
import { repeat } from "../../vendor/lit-html/directives/repeat.js";
import { html, nothing } from "../../vendor/lit-html/lit-html.js";
import { wayPicture } from "./way.js";

const EVERY_S = 2;

/** @type {Tab} */
export const now = (place, name) => {
  const ways = place.news(60, () => /** @type {Promise<Ways>} */ (get(`/pipelines/${name}/ways`)));
  const figures = place.news(EVERY_S, async () => {
    /** @type {Figures} */
    const found = await get(`/pipelines/${name}/figures`);
    for (const line of found.stages) if (!line.table) remember(name, line);
    return found;
  });
  return () =>
    shown(ways, (way) =>
      shown(
        figures,
        (found) => html`${wayPicture(way, found)} ${found.stages.length ? lines(name, found) : nobody(found)}`,
      ),
    );
};

/** @param {Figures} figures */
const nobody = ({ at }) =>
  empty(
    at === null
      ? "Nothing is told while it does not run; the first figures come some seconds after its start."
      : "Nothing has passed yet.",
  );

/**
 * @param {string} name
 * @param {Stage} line
 */
function remember(name, line) {
  remembered(`rows ${name} ${key(line)}`, line.rows_per_s);
  remembered(`lag ${name} ${key(line)}`, line.lag_ms);
}

/** @param {Stage} line */
const key = (line) => `${line.stage} ${line.source} ${line.flow} ${line.table}`;

/**
 * @param {string} name
 * @param {Figures} figures
 */
function lines(name, { at, stages }) {
  const wholes = stages.filter((line) => !line.table);
  const tables = stages.filter((line) => line.table);
  return html`<h2>Stages</h2>
    ${table(
      "Stages",
      [
        "Stage",
        ["Rows a second", "number"],
        ["Bytes a second", "number"],
        ["Delay", "number"],
        ["Median, 99th", "number"],
        ["Rows", "number"],
        ["Set aside", "number"],
        ["Tries again", "number"],
        "Watermark",
      ],
      repeat(wholes, key, (line) => whole(name, line)),
    )}
    <h2>Tables</h2>
    ${table(
      "Tables",
      [
        "Table",
        "Stage",
        "Flow",
        ["Rows", "number"],
        ["Bytes", "number"],
        ["Set aside", "number"],
        ["Median, 99th", "number"],
      ],
      repeat(tables, key, ofTable),
    )}
    <p><small>Since its process began; told ${time(at)}. A dash is not known.</small></p>`;
}

/**
 * @param {string} name
 * @param {Stage} line
 */
const whole = (name, line) =>
  html`<tr>
    <th scope="row">
      ${named(line.stage)}
      <span class="of">${line.source}${line.flow ? ` → ${line.flow}` : ""}</span
      >${line.silent ? html` <span class="state stalled">silent</span>` : nothing}
    </th>
    <td class="number">${sparkline(history(`rows ${name} ${key(line)}`))}${compact(line.rows_per_s)}</td>
    <td class="number">${size(line.bytes_per_s)}</td>
    <td class="number">${sparkline(history(`lag ${name} ${key(line)}`))}${seconds(line.lag_ms)}</td>
    <td class="number">${latencies(line)}</td>
    <td class="number">${count(line.rows)}</td>
    <td class="number">${count(line.failed)}</td>
    <td class="number">${count(line.errors)}</td>
    <td><span class="when">${time(line.watermark)}</span></td>
  </tr>`;

/** @param {string} stage */
const named = (stage) => stage.replace("_", " ");

/** @param {Stage} line */
const ofTable = (line) =>
  html`<tr>
    <th scope="row">${line.table}</th>
    <td>${named(line.stage)}</td>
    <td>${line.flow}</td>
    <td class="number">${count(line.rows)}</td>
    <td class="number">${size(line.bytes)}</td>
    <td class="number">${count(line.failed)}</td>
    <td class="number">${latencies(line)}</td>
  </tr>`;

/** @param {number | null} ms */
const seconds = (ms) => duration(ms === null ? null : ms / 1000);

/** @param {Stage} line */
const latencies = (line) =>
  line.latency_p50_ms === null ? seconds(null) : `${seconds(line.latency_p50_ms)}, ${seconds(line.latency_p99_ms)}`;
