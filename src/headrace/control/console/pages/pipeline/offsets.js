// The partitions of a pipeline's log, and how far each reader is in them.

/** @import {Partition} from "../../answers.js" */
/** @import {Tab} from "../pipeline.js" */
import { get } from "../../api.js";
import { empty, shown, table } from "../../parts.js";
import { count } from "../../show.js";
import { html } from "../../vendor/lit-html/lit-html.js";

const EVERY_S = 10;

/** @type {Tab} */
export const offsets = (place, name) => {
  const news = place.news(EVERY_S, () => /** @type {Promise<Partition[]>} */ (get(`/pipelines/${name}/offsets`)));
  return () =>
    shown(news, (partitions) =>
      partitions.length
        ? table(
            "Offsets",
            [
              "Topic",
              ["Partition", "number"],
              ["First", "number"],
              ["End", "number"],
              "Reader",
              ["Offset", "number"],
              ["Behind", "number"],
            ],
            partitions.flatMap(rows),
          )
        : empty("Nothing is on its log yet."),
    );
};

/** @param {Partition} partition */
function rows({ topic, partition, start, stop, readers }) {
  const own = html`<th scope="row">${topic}</th>
    <td class="number">${partition}</td>
    <td class="number">${count(start)}</td>
    <td class="number">${count(stop)}</td>`;
  if (!readers.length)
    return [
      html`<tr>
        ${own}
        <td class="muted" colspan="3">nobody reads it</td>
      </tr>`,
    ];
  return readers.map(
    ({ reader, kind, offset, lag }) =>
      html`<tr>
        ${own}
        <td>${kind} ${reader}</td>
        <td class="number">${count(offset)}</td>
        <td class="number">${count(lag)}</td>
      </tr>`,
  );
}
