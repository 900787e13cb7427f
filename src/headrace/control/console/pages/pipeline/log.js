// What a pipeline's newest process has printed last.

/** @import {Run} from "../../answers.js" */
/** @import {Tab} from "../pipeline.js" */
import { get } from "../../api.js";
import { empty, shown } from "../../parts.js";
import { html } from "../../vendor/lit-html/lit-html.js";

const EVERY_S = 3;
const LINES = 400;

/** @type {Tab} */
export const log = (place, name) => {
  const news = place.news(EVERY_S, async () => {
    /** @type {Run[]} */
    const [run] = await get(`/pipelines/${name}/runs?limit=1`);
    /** @type {string[]} */
    const lines = run ? await get(`/pipelines/${name}/runs/${run.id}/log`) : [];
    return lines.slice(-LINES);
  });
  return () =>
    shown(news, (lines) =>
      lines.length
        ? html`<pre class="log" tabindex="0" aria-label="Process log">${lines.join("\n")}</pre>
            <p><small>The last ${lines.length} lines.</small></p>`
        : empty("Its newest process has printed nothing, or there was none."),
    );
};
