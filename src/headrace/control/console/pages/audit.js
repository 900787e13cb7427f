// Who did what, the newest first.

/** @import {Deed} from "../answers.js" */
/** @import {Page} from "../place.js" */
import { get } from "../api.js";
import { empty, shown, table } from "../parts.js";
import { time } from "../show.js";
import { repeat } from "../vendor/lit-html/directives/repeat.js";
import { html, nothing } from "../vendor/lit-html/lit-html.js";

const EVERY_S = 10;
const LIMIT = 100;

/** @type {Page} */
export const audit = (place) => {
  place.title = "Audit";
  const before = () => (place.asked("before") ? `&before=${encodeURIComponent(place.asked("before"))}` : "");
  const news = place.news(EVERY_S, () => /** @type {Promise<Deed[]>} */ (get(`/audit?limit=${LIMIT}${before()}`)));
  /** @param {string} id */
  const turn = (id) => {
    place.say({ before: id });
    place.refresh();
  };
  return () =>
    html`<div class="head"><h1>Audit</h1></div>
      ${shown(news, (deeds) =>
        deeds.length
          ? table(
              "Audit",
              ["When", "Who", "From", "What", "Of", "Detail"],
              repeat(deeds, ({ id }) => id, row),
            )
          : empty("Nobody has done anything yet."),
      )}
      <nav class="pager" aria-label="Pages of the audit">
        ${place.asked("before") ? html`<button @click=${() => turn("")}>Newest</button>` : nothing}
        ${news.value?.length === LIMIT ? html`<button @click=${() => turn(String(news.value?.at(-1)?.id))}>Older</button>` : nothing}
      </nav>`;
};

/** @param {Deed} deed */
const row = (deed) =>
  html`<tr>
    <td><span class="when">${time(deed.at)}</span></td>
    <th scope="row">${deed.user}</th>
    <td>${deed.address}</td>
    <td>${deed.action}</td>
    <td>${deed.object}</td>
    <td class="wide">${deed.detail}</td>
  </tr>`;
