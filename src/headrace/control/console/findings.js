// What a check of a flow file found: settings, grants, connections, tables; each with what repairs it.

/** @typedef {{name: string, result: "fine" | "computed" | "advice" | "wrong", message?: string, fix?: string}} Finding */
import { html, nothing } from "./vendor/lit-html/lit-html.js";

const LIKE = { fine: "done", computed: "done", advice: "waiting", wrong: "failed" };

/** @param {Record<string, unknown>[]} found */
export const findingList = (found) =>
  html`<ul class="findings">
    ${
      /** @type {Finding[]} */ (found).map(
        ({ name, result, message, fix }) =>
          html`<li>
            <span class="state ${LIKE[result]}">${result}</span> <strong>${name}</strong> ${message ?? nothing}
            ${fix ? html`<div class="fix">What to do: ${fix}</div>` : nothing}
          </li>`,
      )
    }
  </ul>`;
