// How far event time is complete, stage by stage, and which members hold it: hosts, partitions, sources.
//
// The heat map has a row for each member that is among the farthest behind, and a column for each time that it was asked since the console was
// opened: the darker, the later. A number says the same beside it.

/** @import {WatermarkStage} from "../../answers.js" */
/** @import {Tab} from "../pipeline.js" */
import { get } from "../../api.js";
import { history, remembered } from "../../history.js";
import { empty, shown, table } from "../../parts.js";
import { count, duration, time } from "../../show.js";
import { repeat } from "../../vendor/lit-html/directives/repeat.js";
import { html, nothing, svg } from "../../vendor/lit-html/lit-html.js";

const EVERY_S = 5;
const [CELL, HIGH] = [5, 16];
const COLUMNS = 60;
/** Seconds behind, and how dark that is. */
const SHADES = [1, 5, 15, 60, 300, 1800];

/** @type {Tab} */
export const watermarks = (place, name) => {
  const news = place.news(EVERY_S, async () => {
    /** @type {WatermarkStage[]} */
    const stages = await get(`/pipelines/${name}/watermarks`);
    for (const stage of stages) for (const one of stage.lowest) remembered(key(name, stage, one), behind(one.progress));
    return stages;
  });
  return () =>
    shown(news, (stages) =>
      stages.length
        ? repeat(
            stages,
            (stage) => stage.name,
            (stage) => drawn(name, stage),
          )
        : empty("No stage has reported yet."),
    );
};

/**
 * @param {string} name
 * @param {WatermarkStage} stage
 * @param {{name: string}} member
 */
const key = (name, stage, member) => `late ${name} ${stage.name} ${member.name}`;

/** @param {string | null} moment */
const behind = (moment) => (moment === null ? null : Math.max(0, (Date.now() - Date.parse(moment)) / 1000));

/**
 * @param {string} name
 * @param {WatermarkStage} stage
 */
const drawn = (name, stage) =>
  html`<section class="stage" aria-label=${stage.name}>
    <h2>${stage.name}</h2>
    ${stage.trouble ? html`<div class="note">${stage.trouble}</div>` : nothing}
    <p>
      Complete up to <strong>${time(stage.output)}</strong>, ${duration(behind(stage.output))} behind; the whole
      pipeline up to ${time(stage.overall)}. ${count(stage.members)} ${stage.members === 1 ? "member" : "members"}.
    </p>
    ${
      stage.lowest.length
        ? table(
            "Farthest behind",
            [
              "Farthest behind",
              "Over time",
              ["Behind", "number"],
              "Up to",
              ["Heard last", "number"],
              ["Share of rows", "number"],
            ],
            repeat(
              stage.lowest,
              (one) => one.name,
              (one) =>
                html`<tr>
                  <th scope="row">${one.name}</th>
                  <td>${heat(history(key(name, stage, one)))}</td>
                  <td class="number">${duration(behind(one.progress))}</td>
                  <td><span class="when">${time(one.progress)}</span></td>
                  <td class="number">${duration(Math.max(0, one.silent_s))} ago</td>
                  <td class="number">${(100 * one.share).toFixed(1)} %</td>
                </tr>`,
            ),
          )
        : nothing
    }
    ${stage.gone.length ? html`<p class="muted">Left out: ${stage.gone.map((one) => `${one.name} (${one.state} since ${time(one.since)})`).join(", ")}</p>` : nothing}
  </section>`;

/** @param {(number | null)[]} values seconds behind, oldest first */
function heat(values) {
  const first = COLUMNS - values.length;
  return html`<svg
    class="heat"
    viewBox="0 0 ${COLUMNS * CELL} ${HIGH}"
    width=${COLUMNS * CELL}
    height=${HIGH}
    aria-hidden="true"
  >
    ${values.map((value, index) => svg`<rect class="shade${shade(value)}" x=${(first + index) * CELL} width=${CELL - 1} height=${HIGH} />`)}
  </svg>`;
}

/** @param {number | null} seconds */
const shade = (seconds) => (seconds === null ? "" : SHADES.filter((least) => seconds >= least).length);
