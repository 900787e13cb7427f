// The way of changes as a picture: sources, the log, flows with their targets, and what passes through each now.
//
//     [source] ──┐               ┌── [flow -> target]
//                ├── [ log ] ────┤
//     [source] ──┘               └── [flow -> target]

/** @import {Figures, Stage, Way, Ways} from "../../answers.js" */
import { compact, duration } from "../../show.js";
import { html, nothing, svg } from "../../vendor/lit-html/lit-html.js";

const [WIDTH, BOX, HIGH, GAP] = [1000, 270, 92, 14];
const MIDDLE = (WIDTH - BOX) / 2;
const LETTERS = 38;

/** @typedef {{way: Way, title: string, figures: string, isMoving: boolean, isTroubled: boolean}} Box */

/**
 * @param {Ways} ways
 * @param {Figures} figures
 */
export function wayPicture({ sources, log, flows }, figures) {
  const rows = Math.max(sources.length, flows.length, 1);
  const height = rows * (HIGH + GAP);
  const middle = height / 2;
  const left = sources.map((way) => boxOf(way, way.name, stagesOf(figures, way, "captured")));
  const right = flows.map((way) => boxOf(way, `${way.name} → ${way.type}`, stagesOf(figures, way, "delivered")));
  const at = (/** @type {number} */ index, /** @type {number} */ number) =>
    middle + (index - (number - 1) / 2) * (HIGH + GAP);
  return html`<div class="scroll plain" role="region" aria-label="The way of changes" tabindex="0">
    <svg class="way" viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label=${told(left, right)}>
      ${left.map((box, index) => line(BOX, at(index, left.length), MIDDLE, middle, box.isMoving))}
      ${right.map((box, index) => line(MIDDLE + BOX, middle, WIDTH - BOX, at(index, right.length), box.isMoving))}
      ${left.map((box, index) => drawn(box, 1, at(index, left.length)))}
      ${log ? drawn({ way: log, title: "log", figures: "", isMoving: false, isTroubled: false }, MIDDLE, middle) : nothing}
      ${right.map((box, index) => drawn(box, WIDTH - BOX - 1, at(index, right.length)))}
    </svg>
  </div>`;
}

/**
 * The lines of a source or of a flow that are of it as a whole.
 * @param {Figures} figures
 * @param {Way} way
 * @param {string} stage
 */
const stagesOf = ({ stages }, way, stage) =>
  stages.filter(
    (line) => line.stage === stage && !line.table && (stage === "captured" ? line.source : line.flow) === way.name,
  );

/**
 * @param {Way} way
 * @param {string} title
 * @param {Stage[]} stages
 * @returns {Box}
 */
function boxOf(way, title, stages) {
  const rates = stages.flatMap((line) => line.rows_per_s ?? []);
  const lags = stages.flatMap((line) => line.lag_ms ?? []);
  const rate = rates.length ? rates.reduce((one, other) => one + other) : null;
  const parts = [
    `${compact(rate)} rows/s`,
    lags.length ? `${duration(Math.max(...lags) / 1000)} behind` : "",
    stages.some((line) => line.failed)
      ? `${compact(stages.reduce((total, line) => total + line.failed, 0))} set aside`
      : "",
  ];
  return {
    way,
    title,
    figures: stages.length ? parts.filter(Boolean).join(" · ") : "",
    isMoving: rate !== null && rate > 0,
    isTroubled: stages.some((line) => line.silent || line.failed),
  };
}

/**
 * @param {Box} box
 * @param {number} x
 * @param {number} middle
 */
const drawn = (
  box,
  x,
  middle,
) => svg`<g class=${box.isTroubled ? "trouble" : ""} transform="translate(${x} ${middle - HIGH / 2})">
  <title>${box.way.place}</title>
  <rect width=${BOX} height=${HIGH} rx="8" />
  <text class="name" x="14" y="24">${shortened(box.title)}</text>
  <text class="kind" x="14" y="42">${shortened([box.way.type, box.way.computed ? "computed" : ""].filter(Boolean).join(", "))}</text>
  <text class="place" x="14" y="57">${shortened(box.way.place)}</text>
  <text class="figure" x="14" y="79">${box.figures}</text>
</g>`;

/**
 * @param {number} x
 * @param {number} y
 * @param {number} toX
 * @param {number} toY
 * @param {boolean} isMoving
 */
function line(x, y, toX, toY, isMoving) {
  const half = (x + toX) / 2;
  return svg`<path class=${isMoving ? "flows" : ""} d="M${x} ${y}C${half} ${y} ${half} ${toY} ${toX} ${toY}" />`;
}

/**
 * The end of a place says more than its beginning.
 * @param {string} text
 */
const shortened = (text) => (text.length > LETTERS ? `…${text.slice(1 - LETTERS)}` : text);

/**
 * @param {Box[]} left
 * @param {Box[]} right
 */
const told = (left, right) =>
  `From ${left.map((box) => `${box.title} (${box.figures || "no news"})`).join(", ")} over the log to ${right
    .map((box) => `${box.title} (${box.figures || "no news"})`)
    .join(", ")}`;
